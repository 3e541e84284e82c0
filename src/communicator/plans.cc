#include "communicator/plans.h"

#include <fmt/core.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <set>
#include <thread>

#include "algorithms/prove.h"
#include "base/log.h"

namespace tutti::internal {
namespace {

// Where some ranks share memory and others do not: of each kind what serves it a little less.
constexpr std::size_t kMixedSliceBytes = 128 * 1024;

// What a proof may take of a rank that its caller waits for: with all ranks of a machine proving at once. A ring of
// 400 ranks takes 0.2 s and 51 MiB, one of 1000 takes 1.1 s and 316 MiB, and so on with the square. The tests have
// proven sizes on both sides of those that are left out.
constexpr double kProofMs = 500;
constexpr double kProofMib = 64;
// Where the processor is slow or has others' work to do.
constexpr std::int64_t kGiveUpMs = 2000;
// The last bytes take microseconds, unless the peer is busy with other things or its network is slow.
constexpr std::int64_t kYieldMs = 1;

}  // namespace

Plans::Plans(const Membership& membership, LinkMaker* links, const FailureState& failure, executor::Waiter& waiter,
             std::int64_t timeout_ms, const algorithms::Costs& costs)
    : membership_(membership),
      link_maker_(links),
      failure_(failure),
      waiter_(waiter),
      timeout_ms_(timeout_ms),
      costs_(costs),
      world_{membership.ranks(), membership.hosts} {
  for (auto& rows : rows_) rows.resize(static_cast<std::size_t>(membership.ranks()));
}

Plans::~Plans() = default;

std::size_t Plans::slice_bytes(Collective collective) const {
  const bool shared_alone = world_.hosts.size() == 1;
  const bool none_shared = world_.hosts.size() == static_cast<std::size_t>(world_.ranks);
  const Transport* const only = shared_alone  ? membership_.within_hosts
                                : none_shared ? membership_.between_hosts
                                              : nullptr;
  return only != nullptr ? only->slice_bytes(membership_, collective) : kMixedSliceBytes;
}

void Plans::deliver(Deadline deadline) {
  const auto flushed = [](const auto& entry) { return entry.second->flushed(); };
  // All of them each time, not up to the first that is not: what the rest still sends goes on meanwhile.
  const auto all = static_cast<std::ptrdiff_t>(links_.size());
  const Deadline soon = Deadline::after_ms(kYieldMs);
  while (!failure_.failed() && std::count_if(links_.begin(), links_.end(), flushed) != all && !deadline.passed()) {
    if (soon.passed()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    } else {
      ::sched_yield();
    }
  }
  for (auto& [peer, link] : links_) {
    if (!failure_.failed() && link->flushed()) {
      link->send_leave_notice();
    } else {
      link->revoke();  // else the end of the link would wait for that once more
    }
  }
}

Status Plans::connect(const schedule::Schedule& schedule, Deadline deadline) {
  std::set<int> missing;
  for (const schedule::Step& s : schedule.steps) {
    if (!schedule::is_local(s.kind) && !links_.contains(s.peer)) missing.insert(s.peer);
  }
  if (missing.empty()) return {};
  const std::vector<int> peers(missing.begin(), missing.end());
  auto made = link_maker_->make(peers, failure_, deadline);
  if (!made.is_ok()) return made.status();
  for (std::size_t i = 0; i < peers.size(); ++i) {
    if (Status s = waiter_.add_link(*(*made)[i]); !s.is_ok()) return s;
    links_[peers[i]] = std::move((*made)[i]);
  }
  return {};
}

// What the test suite has not proven, the first use proves, within bounds. The caller waits, and so does who aborts.
Status Plans::prove(const algorithms::AlgorithmEntry& entry, int root, Deadline deadline) const {
  if (algorithms::proven_by_tests(entry, world_, root)) return {};
  const std::string what =
      fmt::format("the schedule of {} {} for {} ranks", name_of(entry.collective), entry.name, world_.ranks);
  const std::string instead =
      algorithms::is_listed(entry)
          ? fmt::format("; the tests have proven it for up to {} ranks", algorithms::ranks_to_prove(entry).back())
          : "; the tests have proven it with other parameters";
  const algorithms::ProofCost cost = algorithms::cost_to_prove(entry, world_, root);
  if (cost.ms > kProofMs || cost.mib > kProofMib) {
    log::info(fmt::format("{} is not proven in this job: it would take about {} ms and {} MiB{}", what,
                          std::lround(cost.ms), std::lround(cost.mib), instead));
    return {};
  }
  const Deadline give_up = Deadline::after_ms(kGiveUpMs);
  bool given_up = false;
  Status ended;
  const auto proof = algorithms::prove(entry, world_, root, [&]() -> Status {
    given_up = give_up.passed();
    if (deadline.passed()) ended = Status::timeout("timed out while proving " + what);
    if (failure_.failed()) ended = failure_.status();
    return given_up ? Status::timeout("given up") : ended;
  });
  if (!ended.is_ok()) return ended;
  if (!given_up) return proof.status();
  log::info(fmt::format("{} is not proven in this job: it has taken more than {} ms{}", what, kGiveUpMs, instead));
  return {};
}

Result<schedule::Schedule> Plans::write_schedule(const algorithms::AlgorithmEntry& entry, int root, Deadline deadline) {
  if (Status s = prove(entry, root, deadline); !s.is_ok()) return s;
  return algorithms::make_schedule(entry, world_, membership_.rank, root);
}

Result<const executor::Plan*> Plans::make(Collective collective, int root, std::size_t bytes, CallHistory* history,
                                          schedule::Order order) {
  auto entry = topology::select(collective, world_, bytes, costs_, membership_.algorithm, order);
  if (!entry.is_ok()) return entry.status();
  if (log::enabled(log::Level::kDebug)) {
    log::debug(fmt::format("{} of {} bytes: {}", name_of(collective), bytes, (*entry)->name));
  }
  auto& [identity, plan] = plans_[{*entry, root}];
  if (plan == nullptr) {
    auto schedule = write_schedule(**entry, root, Deadline::after_ms(timeout_ms_));
    if (!schedule.is_ok()) return schedule.status();
    // Once: the history's readers may look at it from now on.
    if (identity.hash == 0) identity = executor::identify((*entry)->name, *schedule, slice_bytes(collective));
    if (history != nullptr) history->set_plan(identity);
    if (Status s = connect(*schedule, Deadline::after_ms(timeout_ms_)); !s.is_ok()) return s;
    plan = executor::make_plan((*entry)->name, std::move(*schedule), [&](int peer) { return links_.at(peer).get(); },
                               slice_bytes(collective));
  }
  auto& row = rows_[row_of(collective, order)][static_cast<std::size_t>(root)];
  if (row == nullptr) row = std::make_unique<Row>();
  (*row)[static_cast<std::size_t>(std::bit_width(bytes))] = plan.get();
  return plan.get();
}

Status Plans::check_forced(Collective collective, schedule::Order order) const {
  if (membership_.algorithm.empty()) return {};
  return topology::select(collective, world_, 0, costs_, membership_.algorithm, order).status();
}

Result<std::unique_ptr<executor::Plan>> Plans::plan_transfers(schedule::Schedule schedule) {
  if (Status s = connect(schedule, Deadline::after_ms(timeout_ms_)); !s.is_ok()) return s;
  return executor::make_plan(
      "send and receive", std::move(schedule), [&](int peer) { return links_.at(peer).get(); },
      slice_bytes(Collective::kAllToAll));
}

Result<std::string> Plans::describe(Collective collective, std::size_t bytes) const {
  auto entry = topology::select(collective, world_, bytes, costs_, membership_.algorithm);
  if (!entry.is_ok()) return entry.status();
  const std::string transports = membership_.describe_transports();
  return fmt::format("{} over {}", (*entry)->name, transports.empty() ? "memory" : transports);
}

}  // namespace tutti::internal
