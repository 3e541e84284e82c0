#include "executor/waiter.h"

#include <fmt/core.h>
#include <linux/sockios.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <span>
#include <string>
#include <utility>

#include "os/asymmetric_fence.h"

namespace tutti::internal::executor {
namespace {

// A rank that leaves has completed its last operation, so its data is in flight: this long after the leave notice, no
// more data comes.
constexpr std::int64_t kDepartedGraceNs = 200'000'000;
constexpr std::uint32_t kYieldsPerLook = 32;
// The first look costs more than the first yields, and those usually suffice: oversubscribed ranks wait for every
// message.
constexpr std::uint32_t kYieldsBeforeLook = 8;
// After this many yields, which count as a long wait, there is a look.
constexpr std::uint32_t kLooking = 2 * kYieldsPerLook + kYieldsBeforeLook;
static_assert(kLooking % kYieldsPerLook == kYieldsBeforeLook, "the yield behind them looks");
// The maximum time of the turns of all other ranks on a processor, if the communicator is oversubscribed and messages
// are short: with longer ones, no yield reveals a program that does not yield. Eight ranks on two processors took 1.1
// times as long from 2 MiB on.
constexpr std::int64_t kOversubscribedTurnNs = 2'000'000;
constexpr std::size_t kShortTurnBytes = 96 * 1024;
constexpr std::int64_t kAwayNs = 1'000'000'000;

// Whether one of the link's sockets has bytes that the kernel has not sent yet.
bool has_unsent(const transport::Link& link) {
  const std::span<const int> fds = link.wait_fds();
  return std::any_of(fds.begin(), fds.end(), [](int fd) {
    int bytes = 0;
    return ::ioctl(fd, SIOCOUTQNSD, &bytes) == 0 && bytes > 0;
  });
}

}  // namespace

void Waiter::add_link(transport::Link& link) {
  static std::atomic<std::uint64_t> users{0};
  if (link.wait_fds().empty()) return;
  links_.push_back(&link);
  if (user_ == 0) user_ = users.fetch_add(1, std::memory_order_relaxed) + 1;
}

// A peer may have done its part, left and closed its side while this rank is still busy with others: only data that
// this rank still needs from a peer can be missing.
Status Waiter::look_for_trouble(std::int64_t now) {
  lanes_.clear();
  waiting_->list(&lanes_);
  if (!links_.empty()) note_links(now);
  if (now > deadline_ns_) {
    overdue_ = true;
    return bare_timeout();
  }
  const Waiting::For* departed = nullptr;
  for (const Waiting::For& lane : lanes_) {
    // Data that has arrived can still be received, even if the peer has failed or left since.
    if (lane.receives && lane.link->recv().peek(1).size > 0) continue;
    if (lane.receives) {
      if (Status s = lane.link->recv().status(); !s.is_ok()) return s;
    }
    if (lane.sends) {
      if (Status s = lane.link->send().status(); !s.is_ok()) return s;
    }
    if (failure_.any_departed() && failure_.departed(lane.peer)) departed = &lane;
  }
  if (departed == nullptr) {
    departed_since_ns_ = 0;
    return look_for_departure(now);
  }
  if (departed_since_ns_ == 0) departed_since_ns_ = now;
  if (now - departed_since_ns_ < kDepartedGraceNs) return {};
  return Status::remote(fmt::format("rank {} has left the communicator", departed->peer));
}

void Waiter::note_links(std::int64_t now) {
  constexpr std::size_t kMostSends = 16;        // each takes a call
  constexpr std::int64_t kLeastNs = 1'000'000;  // notes take several calls
  // A rank that was stopped meanwhile has not waited.
  constexpr std::int64_t kMostNs = 4 * kMaxSleepMs * kNsPerMs;
  const std::int64_t since_ns = std::min(now - noted_ns_, kMostNs);
  if (stalls_ == nullptr || since_ns < kLeastNs) return;
  noted_ns_ = now;
  held_.clear();
  for (const Waiting::For& lane : lanes_) {
    if (lane.receives && !lane.link->wait_fds().empty()) held_.push_back({lane.peer, false});
  }
  sends_.clear();
  waiting_->list_sends(&sends_);
  if (sends_.size() > kMostSends) sends_.resize(kMostSends);
  for (const Waiting::For& lane : sends_) {
    if (has_unsent(*lane.link)) held_.push_back({lane.peer, true});
  }
  if (!held_.empty()) stalls_->held_up(held_, since_ns);
}

// The awaited rank may itself wait for a rank that has left before this operation. It may be unable to report that
// through the control tree, because the rank that has left may have been between them.
Status Waiter::look_for_departure(std::int64_t now) const {
  if (!failure_.any_departed() || now - yielding_since_ns_ < kDepartedGraceNs) return {};
  const FailureState::Departure left = failure_.departed_before(number_);
  if (left.rank < 0) return {};
  return Status::remote(fmt::format("rank {} has left the communicator", left.rank));
}

Status Waiter::bare_timeout() const {
  return Status::timeout(fmt::format("no progress for {} ms", timeout_ns_ / kNsPerMs));
}

// The lanes wait for the next rank only, which may itself wait for others: it is named only if nothing better is known.
Status Waiter::timed_out() {
  std::string text = bare_timeout().message();
  if (stalls_ != nullptr) {
    const std::string missing = stalls_->missing();
    if (failure_.failed()) return failure_.status();
    if (!missing.empty()) return Status::timeout(text + ": " + missing);
  }
  std::string data;
  std::string room;
  for (const Waiting::For& lane : lanes_) {
    const std::string rank = fmt::format("rank {}", lane.peer);
    if (lane.receives && lane.link->recv().peek(1).size == 0) data += (data.empty() ? "" : ", ") + rank;
    if (lane.sends) room += (room.empty() ? "" : ", ") + rank;
  }
  if (!data.empty()) text += ", waiting for data from " + data;
  if (!room.empty())
    text += fmt::format("{} for {} to take data", std::string(data.empty() ? ", waiting" : " and"), room);
  return Status::timeout(text);
}

Status Waiter::idle_slowly() {
  static_assert(kLooking > kLongYields + 1, "who is to sleep has then waited for long");
  if (failure_.failed()) [[unlikely]]
    return failure_.status();
  const std::uint32_t yields = idle_count_ - spins_;
  // Computed before this look, so that the operation has seen it.
  const bool waited_long = yields > kLongYields + 1;
  if (trials_.pending() && !waited_long) {
    // A rank that runs in order continues by lanes before it sleeps: the peer may wait for data that this rank does not
    // look at.
    const std::int64_t now = now_ns();
    if (yields <= kYieldsBeforeLook) begin_looking(now);
    trials_.sleeps();
    if (spins_ > 0 && vain_spins_.note(now, operations()) == TurnTaking::Advice::kLeaveProcessor &&
        turn_taking_.leaves(now)) {
      (void)affinity_.leave_processor();
    }
    spin(spins_ > 0);
    idle_count_ = spins_ + kLooking - 1;
    return {};
  }
  if (yields % kYieldsPerLook == kYieldsBeforeLook || trials_.pending()) {
    const std::int64_t now = now_ns();
    if (yields == kYieldsBeforeLook) begin_looking(now);
    if (Status s = look_for_trouble(now); !s.is_ok()) return explain(std::move(s));
    if (trials_.pending() || now - yielding_since_ns_ > kYieldNs) {
      // As above: a few yields may have taken that long.
      if (!waited_long) {
        idle_count_ = spins_ + kLooking - 1;
        return {};
      }
      if (Status s = tell_of_stall(now); !s.is_ok()) return s;
      sleep(now);
      return {};
    }
  }
  yield();
  return {};
}

Status Waiter::look(std::int64_t now_ns) {
  if (failure_.failed()) [[unlikely]]
    return failure_.status();
  // As many looks as idle() makes before the first yields: after them, a running peer would have moved something.
  if (idle_count_ < spins_ + kYieldsBeforeLook) ++idle_count_;
  if (idle_count_ <= spins_) return {};
  if (idle_count_ == spins_ + 1) {
    begin_looking(now_ns);
    next_look_ns_ = now_ns + kLookNs;
  }
  if (now_ns < next_look_ns_) return {};
  next_look_ns_ = now_ns + kLookNs;
  if (Status s = look_for_trouble(now_ns); !s.is_ok()) return s;
  return now_ns - yielding_since_ns_ > kYieldNs ? tell_of_stall(now_ns) : Status();
}

// Ranks that owe data; if there are none, ranks that have not taken data.
std::vector<int> Waiter::awaited() const {
  std::vector<Waiting::For> lanes;
  waiting_->list(&lanes);
  const bool receives = std::any_of(lanes.begin(), lanes.end(), [](const Waiting::For& lane) { return lane.receives; });
  std::vector<int> ranks;
  for (const Waiting::For& lane : lanes) {
    if (lane.receives == receives) ranks.push_back(lane.peer);
  }
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

Status Waiter::explain(Status status) {
  return std::exchange(overdue_, false) ? timed_out() : status;
}

void Waiter::begin_looking(std::int64_t now) {
  yielding_since_ns_ = noted_ns_ = now;
  departed_since_ns_ = 0;
  disturbed_ = false;
  // The deadline counts from the last progress, so an operation that is slow but progresses does not time out.
  deadline_ns_ = now + timeout_ns_;
}

// If ranks are oversubscribed, an operation needs a turn of each, so one rank too many on a processor delays all
// others. The scheduler sees only that every processor is busy.
void Waiter::go_back() {
  const std::int64_t now = now_ns();
  if (now - went_back_ns_ < kPreferredIntervalNs) return;
  went_back_ns_ = now;
  (void)affinity_.move_to(preferred_.processor);
}

void Waiter::yield() {
  if (preferred_.processor >= 0 && step_bytes_ <= preferred_.step_bytes && ::sched_getcpu() != preferred_.processor)
      [[unlikely]]
    go_back();
  // The first yield of a wait: the yields of the preceding wait cost nothing.
  if (idle_count_ == spins_ + 1 && !std::exchange(trial_cost_, false)) trials_.note(0);
  const std::int64_t begin_ns = now_ns();
  ::sched_yield();
  const std::int64_t end_ns = now_ns();
  const std::int64_t took_ns = end_ns - begin_ns;
  if (took_ns > (oversubscribed_ ? kOversubscribedTurnNs : TurnTaking::kTurnNs)) [[unlikely]] {
    // Beside such a program, an even distribution of ranks is not one of processor time: the scheduler knows better.
    went_back_ns_ = end_ns + kAwayNs;
    if (!oversubscribed_ || step_bytes_ <= kShortTurnBytes) {
      trial_cost_ = true;
      trials_.note(took_ns);
      spin(spins_ > 0);
    }
  }
  if (oversubscribed_) return;
  const TurnTaking::Advice advice = turn_taking_.note(took_ns, end_ns);
  if (advice == TurnTaking::Advice::kLeaveProcessor) (void)affinity_.leave_processor();
  if (turn_taking_.taking_turns() != takes_turns()) spin(!turn_taking_.taking_turns());
}

std::int64_t Waiter::processor_switches() {
  rusage usage{};
  (void)::getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_nvcsw + usage.ru_nivcsw;
}

// The current wait keeps its number of yields.
void Waiter::spin(bool spins) {
  const std::uint32_t yields = idle_count_ - spins_;
  spins_ = !spins ? 0 : trials_.pending() ? kSpinsBesideOthers[static_cast<std::size_t>(vain_spins_.next())] : kSpins;
  stall_ = std::min(spins_, kHotSpins);
  idle_count_ = spins_ + yields;
}

bool Waiter::arm(const transport::EventSet& set) {
  // Not before the operation counts as stalled and its deadline has begun: data that moves only then moves at the next
  // look. Nor before some more looks, because a lane may show more with each.
  if (idle_count_ < spins_ + kYieldsBeforeLook) {
    idle_count_ = std::max(idle_count_, spins_);
    return false;
  }
  armed_elsewhere_ = true;
  return arm_lanes(&set);
}

bool Waiter::arm_lanes(const transport::EventSet* set) {
  lanes_.clear();
  waiting_->list(&lanes_);
  const bool quiet = std::all_of(lanes_.begin(), lanes_.end(), [set](const Waiting::For& lane) {
    return (set == nullptr || set->watch(*lane.link)) && lane.link->arm();
  });
  // Data that a rank sent before it left is still arriving, even if this rank had no processor for a long time.
  if (!quiet) departed_since_ns_ = 0;
  return quiet;
}

void Waiter::disarm() {
  for (const Waiting::For& lane : lanes_) lane.link->disarm();
}

void Waiter::leave(const transport::EventSet& set) {
  if (!std::exchange(armed_elsewhere_, false)) return;
  for (transport::Link* const link : links_) set.unwatch(*link);
}

void Waiter::sleep(std::int64_t now) {
  // Twice: the first call publishes that this rank sleeps, the fence makes every peer see that before it next acts, the
  // second call sees what peers did in between.
  const transport::SleepingPlace place(wakeup_fd_, user_);
  bool quiet = arm_lanes(place.set());
  if (quiet) {
    asymmetric_fence_heavy();
    quiet = arm_lanes(place.set());
  }
  // Events on descriptors since the last sleep.
  if (quiet && user_ != 0 && place.set() != nullptr) quiet = !place.set()->take(0);
  if (quiet) {
    const int longest = asymmetric_fence_works() ? kMaxSleepMs : kUnfencedSleepMs;
    const std::int64_t left_ms = (deadline_ns_ - now) / kNsPerMs + 1;
    place.sleep(static_cast<int>(std::clamp<std::int64_t>(left_ms, 0, longest)));
  }
  disarm();
  if (quiet && !links_.empty()) note_links(now_ns());
  if (quiet) vain_spins_.woke(now_ns(), operations());
  // An event has occurred meanwhile: a yield would give away a time slice for nothing. But if that event did not help
  // this rank, or a transport is never quiet, it yields. A new set reports descriptors that are ready already: another
  // thread that ran now might replace that set before it is used.
  if (!quiet && !place.is_new() && (!trials_.pending() || disturbed_)) ::sched_yield();
  disturbed_ = !quiet && !place.is_new();
  // Looks at once for trouble, and sleeps again if nothing has come.
  idle_count_ = spins_ + kLooking - 1;
}

}  // namespace tutti::internal::executor
