#include "communicator/survivors.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <optional>
#include <string_view>
#include <type_traits>
#include <utility>

#include "base/rank_list.h"
#include "communicator/communicator.h"
#include "communicator/join.h"
#include "net/seal.h"

namespace tutti::internal {
namespace {

std::vector<int> all_but(int ranks, const std::vector<int>& excluded) {
  std::vector<int> rest;
  for (int rank = 0; rank < ranks; ++rank) {
    if (!std::binary_search(excluded.begin(), excluded.end(), rank)) rest.push_back(rank);
  }
  return rest;
}

// An offer, and what it contains.
template <class T>
std::string bytes_of(const T& value) {
  static_assert(sizeof value <= control::kMaxOfferBytes && std::is_trivially_copyable_v<T>);
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

template <class T>
Result<T> value_of(const std::string& bytes) {
  T value{};
  if (bytes.size() != sizeof value) return Status::remote("protocol error: an offer of the wrong length");
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

// How often ranks with a limit for late ones try to make a communicator, if they have no result within its timeout.
constexpr int kMostTimedOut = 3;

// The result of the last agreement for a rank that has its part of the new communicator.
Status check_end(const Result<Agreement>& end) {
  if (!end.is_ok()) return end.status();
  if (!end.value().failed.empty()) {
    return Status::remote(list_ranks(end.value().failed) + " died before all ranks had the new communicator");
  }
  return end.value().flags != 0 ? Status() : Status::remote("another rank of the communicator could not join");
}

// If the ranks that did not come may be those of dead members, says so.
Status with_dead(const Status& status, const std::vector<int>& dead) {
  if (status.code() != Code::kTimeout || dead.empty()) return status;
  return Status::timeout(fmt::format("{}. Of the communicator, {} had died: a new rank can take such a number",
                                     status.message(), list_ranks(dead)));
}

}  // namespace

// Marks that a thread is inside a call.
class Survivors::Inside {
 public:
  Inside(std::atomic<bool>* mark, const Failures& failures, std::string_view call)
      : mark_(mark->exchange(true) ? nullptr : mark) {
    if (mark_ != nullptr) agreeing_.emplace(failures.ring(), call);
  }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;
  ~Inside() {
    agreeing_.reset();
    if (mark_ != nullptr) *mark_ = false;
  }
  [[nodiscard]] Status status() const {
    return mark_ != nullptr
               ? Status()
               : Status::invalid_usage(
                     "another thread is inside tuttiCommShrink, tuttiCommGrow or tuttiCommAgree of this communicator. "
                     "Call them from one thread at a time");
  }

 private:
  std::atomic<bool>* const mark_;  // null: another thread is inside
  std::optional<observe::EventRing::Agreeing> agreeing_;
};

Result<Agreement> Survivors::agree(const Proposal& own, Deadline deadline, const Ends& ends) {
  const Inside inside(&inside_, failures_, own.call);
  if (!inside.status().is_ok()) return inside.status();
  return agree_inside(own, deadline, ends);
}

Result<Agreement> Survivors::agree_inside(const Proposal& own, Deadline deadline, const Ends& ends) {
  if (failures_.is_finalized()) return Status::invalid_usage("the communicator is finalized");
  if (epoch_.tree() == nullptr) return Agreement{own.flags, own.offer};
  auto agreed = epoch_.tree()->agree(own, deadline, [this, &ends] {
    const Status aborted = check_not_aborted();
    return aborted.is_ok() && ends ? ends() : aborted;
  });
  if (!agreed.is_ok()) return agreed;
  const MutexLock lock(mutex_);
  failed_ = joined(failed_, agreed->failed);
  const std::vector<int>& late = agreed->late;
  // The others are late only because they do not take part any more.
  const bool is_behind = !late.empty() && late_ranks_.have_gone_on(own.series);
  if (is_behind || std::binary_search(late.begin(), late.end(), epoch_.rank())) {
    return Status::timeout("this rank is late: the others have gone on without it");
  }
  return agreed;
}

Status Survivors::check_not_aborted() const {
  return failures_.is_aborted() ? Status::aborted("the communicator has been aborted") : ended();
}

std::vector<int> Survivors::failed() const {
  const MutexLock lock(mutex_);
  return failed_;
}

// First the members agree on the ones that live, and on an id. When all have made their parts, or failed to, they agree
// on that. A death between the two, or a late rank that may be left out, makes them begin again, so that no rank has
// the new communicator alone.
Result<std::unique_ptr<Communicator>> Survivors::shrink(const ShrinkWish& wish, const MakeGroup& make_group) {
  constexpr std::uint64_t kMade = 1;
  constexpr std::uint64_t kMadeOrTimedOut = 2;
  const Inside inside(&inside_, failures_, wish.call);
  if (!inside.status().is_ok()) return inside.status();
  const std::int64_t timeout_ms =
      wish.settings != nullptr ? wish.settings->init_timeout_ms : epoch_.settings().init_timeout_ms;
  const bool takes_late = wish.limit_ms != 0;
  const bool in_survivor_mode = wish.late != nullptr && wish.settings->straggler_ms > 0;
  Proposal proposal{.call = {}, .excluded = wish.excluded, .takes_late = takes_late, .series = wish.series};
  const std::string call =
      wish.excluded.empty() ? wish.call : fmt::format("{} without {}", wish.call, list_ranks(wish.excluded));
  // If it lists late members, begin again without them.
  const auto agree_on = [&](const std::string& step, std::uint64_t flags, Deadline deadline) -> Result<Agreement> {
    proposal.call = call + step;
    proposal.flags = flags;
    auto agreed = agree_inside(proposal, deadline);
    if (!agreed.is_ok() || agreed->late.empty()) return agreed;
    *wish.late = joined(*wish.late, agreed->late);
    proposal.excluded = joined(proposal.excluded, agreed->late);
    return agreed;
  };
  int timed_out = 0;
  for (;;) {
    proposal.offer = bytes_of(epoch_.draw_id());
    auto living = agree_on({}, kMade | kMadeOrTimedOut, Deadline::after_ms(takes_late ? wish.limit_ms : timeout_ms));
    if (!living.is_ok()) return living.status();
    if (!living->late.empty()) continue;
    auto id = value_of<std::uint64_t>(living->offer);
    if (!id.is_ok()) return id.status();
    proposal.excluded = joined(proposal.excluded, living->failed);
    GroupWish group{*id, all_but(epoch_.ranks(), proposal.excluded), wish.settings, wish.refused};
    group.ignores_revoke = true;
    group.gives_up = [&]() -> Status {
      const Status over = ended();
      return over.is_ok() && takes_late ? check_on_time(group.members) : over;
    };
    const Deadline all_made = Deadline::after_ms(timeout_ms + wish.limit_ms);
    auto made = make_group(group);
    const bool retry = in_survivor_mode && made.status().code() == Code::kTimeout && timed_out < kMostTimedOut;
    // The two have different texts: a rank in the first one does not contribute to the second.
    proposal.offer.clear();
    auto end = agree_on(" (its second step)",
                        made.is_ok() ? kMade | kMadeOrTimedOut
                        : retry      ? kMadeOrTimedOut
                                     : 0,
                        takes_late ? all_made : Deadline::after_ms(timeout_ms));
    if (!end.is_ok()) return end.status();
    if (!end->late.empty()) continue;
    if (!end->failed.empty()) {
      proposal.excluded = joined(proposal.excluded, end->failed);
    } else if ((end->flags & kMade) != 0 || (end->flags == 0 && !made.is_ok())) {
      return made;
    } else if (end->flags == 0) {
      return Status::remote("another rank could not make its part of the new communicator");
    } else {
      ++timed_out;
    }
  }
}

// A rank that has said that it is late may have contributed before.
Status Survivors::check_on_time(const std::vector<int>& ranks) const {
  const MutexLock lock(mutex_);
  for (const int rank : ranks) {
    if (late_ranks_.is_back(rank)) return Status::timeout(fmt::format("rank {} is late", rank));
  }
  return {};
}

Status Survivors::check_alive(const std::vector<int>& dead) const {
  if (epoch_.tree() == nullptr) return {};
  auto known = epoch_.tree()->dead();
  Status status = known.status();
  (known.is_ok() ? *known : RankSet()).each([&](int rank) {
    if (std::binary_search(dead.begin(), dead.end(), rank)) return;
    status = Status::remote(fmt::format("rank {} died before all ranks had joined", rank));
  });
  return status;
}

// The new ranks know only the id. So the members join a new job with them, in which they are ranks as all others; until
// all have joined, the old control tree tells of members that die. By a second agreement the members learn whether all
// of them have joined. If not, those that have tell the new ranks.
Result<std::unique_ptr<Communicator>> Survivors::grow(const GrowWish& wish) {
  const Inside inside(&inside_, failures_, "tuttiCommGrow");
  if (!inside.status().is_ok()) return inside.status();
  const Settings settings = wish.settings != nullptr ? *wish.settings : epoch_.settings();
  const std::string call = fmt::format("tuttiCommGrow to {} ranks", wish.ranks);
  const auto deadline = [&settings] { return Deadline::after_ms(settings.init_timeout_ms); };
  std::optional<UniqueIdBytes> id = wish.id;
  auto offer = id ? net::seal(epoch_.secret(), bytes_of(*id)) : std::string();
  if (!offer.is_ok()) return offer.status();
  auto agreed = agree_inside({call, {}, ~std::uint64_t{0}, *offer}, deadline());
  const Status refused = agreed.is_ok() ? take_id(wish, *agreed, &id) : agreed.status();
  // The new ranks wait, and perhaps other members.
  if (!refused.is_ok() && id) {
    decline_with_id(*id, epoch_.rank(), wish.ranks, refused, [this] { return check_not_aborted(); });
  }
  if (!agreed.is_ok()) return refused;
  Result<std::unique_ptr<Communicator>> made = refused;
  if (refused.is_ok()) {
    const auto gives_up = [&]() -> Status {
      const Status aborted = check_not_aborted();
      return aborted.is_ok() ? check_alive(agreed->failed) : aborted;
    };
    made = join_with_id(*id, epoch_.rank(), wish.ranks, settings, gives_up, "tuttiCommGrow");
  }
  const std::uint64_t success = made.is_ok() ? ~std::uint64_t{0} : 0;
  const auto end = agree_inside({call + " (its second step)", agreed->failed, success}, deadline());
  const Status failed = made.is_ok() ? check_end(end) : with_dead(made.status(), agreed->failed);
  if (failed.is_ok()) return made;
  if (made.is_ok()) (*made)->epoch().tell_peers(failed.with_context("tuttiCommGrow"));
  return failed;
}

// *id: this rank's own, if it has one; then the one that applies.
Status Survivors::take_id(const GrowWish& wish, const Agreement& agreed, std::optional<UniqueIdBytes>* id) const {
  static_assert(kUniqueIdBytes + net::kSealBytes <= control::kMaxOfferBytes);
  if (!agreed.offer.empty()) {
    auto opened = net::unseal(epoch_.secret(), agreed.offer);
    if (!opened.is_ok()) return opened.status();
    auto common = value_of<UniqueIdBytes>(*opened);
    if (!common.is_ok()) return common.status();
    *id = *common;
  }
  if (!wish.refused.is_ok()) return wish.refused;
  if (const int last = all_but(epoch_.ranks(), agreed.failed).back(); last >= wish.ranks) {
    return Status::invalid_argument(
        fmt::format("nRanks is {}, but rank {} lives and keeps its rank. Pass more, or call tuttiCommShrink first",
                    wish.ranks, last));
  }
  if (!*id && !agreed.failed.empty()) {
    return Status::remote(fmt::format("{} died, and no other rank has passed a unique id", list_ranks(agreed.failed)));
  }
  if (!*id) {
    return Status::invalid_usage(
        "no rank has passed a unique id. One rank calls tuttiCommGetUniqueId, and passes its id to tuttiCommGrow");
  }
  return wish.id && *wish.id != **id ? Status::mismatch("two ranks have passed different unique ids") : Status();
}

}  // namespace tutti::internal
