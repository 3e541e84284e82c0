#include "join/root_search.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/control_group.h"
#include "join/running_root.h"
#include "join/wait_notices.h"
#include "net/dial.h"
#include "net/socket.h"
#include "os/clock.h"

namespace tutti::internal {
namespace {

constexpr std::int64_t kRefusedMs = 1'000;  // a root that existed and refuses for this time has ended
constexpr std::int64_t kForeignMs = 5'000;  // a root that has another secret for this time belongs to another job
// The time between two look-ups of a name, which load the job's name server and block this rank. Short at first,
// because a newly registered name appears soon; each wait is longer than the last, up to a maximum.
constexpr std::int64_t kFirstLookUpMs = 200;
constexpr std::int64_t kLongestLookUpMs = 5'000;

class RootSearch {
 public:
  RootSearch(const RootPlace& place, const net::Secret& secret, RootKind kind, const Member& member)
      : place_(place), secret_(secret), kind_(kind), member_(member), notices_(member.settings) {}

  Result<net::ByteStream> run();

 private:
  [[nodiscard]] bool looks_up() const { return !place_.host.empty() && !(dial_ && dial_->proven()); }
  void look_up();
  void dial(std::vector<net::Address> addresses);
  [[nodiscard]] Status hopeless() const;
  [[nodiscard]] std::string trouble() const;

  const RootPlace& place_;
  const net::Secret& secret_;
  const RootKind kind_;
  const Member& member_;
  WaitNotices notices_;
  std::vector<net::Address> addresses_;
  std::optional<net::Dial> dial_;  // none: the name has no address yet
  Status unresolved_;              // why the last look-up has failed
  std::int64_t pause_ms_ = kFirstLookUpMs;
  std::int64_t look_up_ns_ = 0;  // next
};

void RootSearch::dial(std::vector<net::Address> addresses) {
  const net::Claim claim{net::Purpose::kRoot, member_.rank, 0, 1, 0, member_.settings.encrypt};
  dial_.emplace(addresses, secret_, claim, -1);
  addresses_ = std::move(addresses);
}

// A look-up may take as long as the system's resolver does. So none is made while a root answers, and dialling gets at
// least twice the time of the look-up.
void RootSearch::look_up() {
  const std::int64_t begin_ns = now_ns();
  if (!looks_up() || begin_ns < look_up_ns_) return;
  Result<std::vector<net::Address>> found = place_.resolve(place_.host, 0);
  look_up_ns_ = now_ns() + std::max(pause_ms_ * kNsPerMs, 2 * (now_ns() - begin_ns));
  pause_ms_ = std::min(pause_ms_ * 2, kLongestLookUpMs);
  unresolved_ = found.status();
  if (!found.is_ok()) return;
  std::vector<net::Address> all;
  for (const std::uint16_t port : place_.ports) {
    for (const net::Address& address : *found) all.push_back(address.with_port(port));
  }
  // Name servers change the order of their answers; that does not restart a dial.
  if (!std::is_permutation(all.begin(), all.end(), addresses_.begin(), addresses_.end())) dial(std::move(all));
}

std::string RootSearch::trouble() const {
  if (!dial_) return unresolved_.message();
  const std::string cause = dial_->likely_cause();
  std::string text = dial_->trouble();
  if (!cause.empty()) text += fmt::format(" ({})", cause);
  if (!unresolved_.is_ok()) text += "; " + unresolved_.message();
  return text;
}

// The reason to give up before the deadline; ok: continue.
Status RootSearch::hopeless() const {
  if (Status own = member_.gives_up ? member_.gives_up() : Status(); !own.is_ok()) return own;
  if (!dial_) {
    return unresolved_.is_exhaustion() ? unresolved_.with_context("the address of the job's root service") : Status();
  }
  const auto here = kind_.came_first ? find_running_root(secret_) : nullptr;
  if (Status own = here != nullptr ? here->failure() : Status(); !own.is_ok()) {
    constexpr const char* kWhere = "the job's root service, which runs in this process";
    // The service's thread may have had no memory for the text of the limits.
    const std::string limits = own.is_exhaustion() ? limits_of_addresses() : "";
    if (limits.empty() || own.message().find(limits) != std::string::npos) return own.with_context(kWhere);
    return {own.code(), fmt::format("{}: {} ({})", kWhere, own.message(), limits)};
  }
  if (!dial_->shortage().is_ok()) return dial_->shortage().with_context(fmt::format("connecting to {}", kRootService));
  if (kind_.alone && dial_->foreign_for(kForeignMs)) {
    return Status::invalid_usage(
        fmt::format("{} has a different secret. Set the same TUTTI_SECRET on all ranks, and check that the address or "
                    "unique id is this job's: {}",
                    kRootService, dial_->trouble()));
  }
  if (kind_.alone && dial_->other_version_for(kForeignMs)) {
    return Status::invalid_usage(
        fmt::format("{} has another version of tutti. Load the same library on all ranks (see LD_LIBRARY_PATH and "
                    "container images), and check the address: {}",
                    kRootService, dial_->trouble()));
  }
  if (kind_.came_first && dial_->refused_for(kRefusedMs)) {
    if (here != nullptr && !here->ended()) {
      return Status::remote(fmt::format(
          "this process cannot connect to the job's root service, which runs in it: {}. Let this host connect to "
          "itself: check that the loopback interface is up and that no packet filter refuses this",
          dial_->trouble()));
    }
    if (!dial_->any_refused()) return Status::remote(fmt::format("{} cannot be reached: {}", kRootService, trouble()));
    return Status::remote(
        fmt::format("{} no longer listens: its process has ended, or the job has failed, or all its ranks have joined "
                    "(a unique id makes one communicator): {}",
                    kRootService, dial_->trouble()));
  }
  return {};
}

Result<net::ByteStream> RootSearch::run() {
  net::PollSet set;
  if (place_.host.empty()) dial(place_.addresses);
  for (;;) {
    look_up();
    notices_.look([this](const std::string& waited) {
      return fmt::format("rank {} of {} has looked for {} for {}: {}", member_.rank, member_.ranks, kRootService,
                         waited, trouble());
    });
    set.clear(member_.gives_up ? kFailureCheckMs : 1000);
    set.wake_at(member_.deadline);
    if (looks_up()) {
      set.wake_at(Deadline::after_ms(std::max<std::int64_t>(0, look_up_ns_ - now_ns()) / kNsPerMs + 1));
    }
    if (dial_) dial_->prepare(&set);
    if (Status s = set.wait(); !s.is_ok()) return s;
    if (dial_) dial_->process(set);
    if (dial_ && dial_->done()) return dial_->take();
    if (Status s = hopeless(); !s.is_ok()) return s;
    if (member_.deadline.passed()) {
      return Status::timeout(fmt::format("timed out while rank {} of {} looked for {}: {}", member_.rank, member_.ranks,
                                         kRootService, trouble()));
    }
  }
}

}  // namespace

Result<net::ByteStream> find_root(const RootPlace& place, const net::Secret& secret, RootKind kind,
                                  const Member& member) {
  return RootSearch(place, secret, kind, member).run();
}

}  // namespace tutti::internal
