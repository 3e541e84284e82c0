#include "observe/event_ring.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <utility>

#include "base/collectives.h"
#include "base/float_mode.h"
#include "base/status.h"
#include "base/types.h"
#include "observe/tick_clock.h"
#include "os/clock.h"
#include "os/ticks.h"

namespace tutti::internal::observe {
namespace {

// The first report of each wait comes at once; shorter waits are in the time of the operation.
constexpr std::int64_t kLongMs = 20;

// Of Event::call and Event::count (executor/fingerprint.h).
constexpr std::uint32_t kCollectiveWords = 32;
constexpr std::uint32_t kTypeWords = 64;
constexpr unsigned kOpaqueShift = 48;

// Of all rings of the process: ticks inside collectives that did not take the fast path.
constinit std::atomic<std::uint64_t> inside_ticks{0};

}  // namespace

struct EventRing::Unshared {
  Ring ring{};
};

EventRing::EventRing(const RingPlace& place, std::unique_ptr<Unshared> unshared)
    : place_(place), unshared_(std::move(unshared)) {}

std::unique_ptr<EventRing> EventRing::unshared() {
  auto own = std::make_unique<Unshared>();
  const RingPlace place{.ring = &own->ring};
  return std::unique_ptr<EventRing>(new EventRing(place, std::move(own)));
}

std::unique_ptr<EventRing> EventRing::take() {
  const RingPlace place = take_ring();
  if (place.ring == nullptr) return unshared();
  try {
    return std::unique_ptr<EventRing>(new EventRing(place, nullptr));
  } catch (...) {
    give_back(place);
    throw;
  }
}

void EventRing::name(std::uint64_t communicator, int rank, int ranks) {
  at().rank = rank;
  at().ranks = ranks;
  at().communicator.store(communicator, std::memory_order_release);
}

std::unique_ptr<EventRing> EventRing::open(std::uint64_t communicator, int rank, int ranks,
                                           std::unique_ptr<EventRing>* joining) {
  std::unique_ptr<EventRing> made = joining != nullptr && *joining != nullptr ? std::move(*joining) : take();
  made->at().agreeing_since_ns.store(0, std::memory_order_relaxed);
  made->measures_ = made->place_.measures;
  if (made->measures_ != nullptr) (void)ns_of_ticks(1);  // now, and not in the first operation
  if (made->unshared_ == nullptr) made->name(communicator, rank, ranks);
  made->open_trace(communicator, rank, ranks);
  return made;
}

std::unique_ptr<EventRing> EventRing::joining(std::uint64_t job, int rank, int ranks, std::string_view call) {
  std::unique_ptr<EventRing> made = take();
  made->measures_ = nullptr;
  if (made->unshared_ == nullptr) made->name(job, rank, ranks);
  made->begin_agreement(call);
  return made;
}

void EventRing::open_trace(std::uint64_t communicator, int rank, int ranks) {
  trace_ = Trace::open(communicator, rank, ranks);
  if (trace_ != nullptr) steps_ = std::make_unique<StepLog>();
}

EventRing::~EventRing() {
  if (measures_ != nullptr && is_own(place_)) {
    const Status noted = guarded([&] {
      note_ended({at().communicator.load(std::memory_order_relaxed), at().rank, at().ranks, read(*measures_)});
      return Status();
    });
    (void)noted;
  }
  if (unshared_ == nullptr) give_back(place_);
  const Status forgotten = guarded([] { return forget_own_times(), Status(); });
  (void)forgotten;
}

void EventRing::name_plan(std::uint32_t hash, std::string_view text) {
  if (trace_ != nullptr) trace_->name_plan(hash, text);
  // The operation is known, and runs now.
  if (ranges_ != nullptr) begin_range();
  for (std::uint32_t row = 0; row < kPlanRows; ++row) {
    PlanText& place = ring_->plans[(hash + row) % kPlans];
    const std::uint32_t found = place.hash.load(std::memory_order_relaxed);
    if (found == hash) return;
    if (found != 0) continue;
    std::memcpy(place.text.data(), text.data(), std::min(text.size(), place.text.size() - 1));
    place.hash.store(hash, std::memory_order_release);
    return;
  }
}

void EventRing::set_inside(bool inside, Whose whose) {
  if (inside) whose_ = whose;
  at().inside.store(inside ? 1 : 0, std::memory_order_relaxed);
  longest_ = {};
  if (ranges_ != nullptr) {
    end_range();
    // A call that is repeated has begun before it is inside, with its plan.
    const Event& last = event(at().sequence.load(std::memory_order_relaxed));
    const bool has_ended = last.ended.load(std::memory_order_relaxed) > last.begun.load(std::memory_order_relaxed);
    if (inside && last.plan.load(std::memory_order_relaxed) != 0 && !has_ended) begin_range();
  }
  // What the rank was in when the communicator failed stays to be read.
  if (inside || has_failed()) return;
  const std::uint64_t now = ticks();
  outside_since_ = now;
  if (at().transfer.load(std::memory_order_relaxed) != 0) {
    at().transfer.store(0, std::memory_order_relaxed);
  } else {
    end_last(now);
  }
  if (at().seen_ns.load(std::memory_order_relaxed) != 0) at().seen_ns.store(0, std::memory_order_relaxed);
  // So that the next time outside can be told from this operation.
  if (now - looked_ticks_ > kLongTicks / 4) read_times(now);
}

// A refused call has changed nothing, and one that is measured has ended already.
void EventRing::end_last(std::uint64_t now) noexcept {
  Event& last = event(at().sequence.load(std::memory_order_relaxed));
  const std::uint64_t begun = last.begun.load(std::memory_order_relaxed);
  if (last.ended.load(std::memory_order_relaxed) > begun) return;
  last.ended.store(now, std::memory_order_relaxed);
  own_ticks_ += now - begun;
  inside_ticks.fetch_add(now - begun, std::memory_order_relaxed);
}

std::optional<EventRing::Reading> EventRing::read_times(std::uint64_t now) noexcept {
  looked_ticks_ = now;
  auto own = guarded_result([&] { return own_times(whose_); });
  Position& place = at();
  place.read_ticks.store(0, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  const std::optional<Reading> before = std::exchange(read_, std::nullopt);
  if (!own.is_ok()) return std::nullopt;
  read_ = Reading{now, now_ns(), *own, inside_ticks.load(std::memory_order_relaxed) - own_ticks_};
  place.thread.store(own->thread, std::memory_order_relaxed);
  place.read_ns.store(read_->ns, std::memory_order_relaxed);
  place.run_ns.store(own->times.run_ns, std::memory_order_relaxed);
  place.delay_ns.store(own->times.delay_ns, std::memory_order_relaxed);
  place.read_ticks.store(now, std::memory_order_release);
  return before;
}

std::optional<Outside> EventRing::present_outside() const {
  const Position& place = at();
  const std::uint64_t read_ticks = place.read_ticks.load(std::memory_order_acquire);
  if (place.inside.load(std::memory_order_relaxed) != 0 || read_ticks == 0) return std::nullopt;
  const Moment now = moment_now();
  const TickClock clock({read_ticks, place.read_ns.load(std::memory_order_relaxed)}, now, now.ns);
  const Event& last = event(place.sequence.load(std::memory_order_relaxed));
  const std::uint64_t since =
      std::max(last.begun.load(std::memory_order_relaxed), last.ended.load(std::memory_order_relaxed));
  const ThreadTimes before{place.run_ns.load(std::memory_order_relaxed),
                           place.delay_ns.load(std::memory_order_relaxed)};
  const auto times = times_of(0, place.thread.load(std::memory_order_relaxed));
  std::atomic_thread_fence(std::memory_order_acquire);
  if (place.read_ticks.load(std::memory_order_relaxed) != read_ticks) return std::nullopt;
  if (!times || since == 0 || times->run_ns < before.run_ns || times->delay_ns < before.delay_ns) return std::nullopt;
  return split_time(now.ns - clock.ns_of(since), now.ns - clock.ns_of(read_ticks),
                    {times->run_ns - before.run_ns, times->delay_ns - before.delay_ns});
}

// The program may trap exceptions of floating-point arithmetic.
void EventRing::note_outside(std::uint64_t now) noexcept {
  const InFloatMode standard;
  note_outside_in_default_mode(now);
}

[[gnu::noinline]] void EventRing::note_outside_in_default_mode(std::uint64_t now) noexcept {
  const std::uint64_t since = outside_since_;
  const std::optional<Reading> before = read_times(now);
  if (!before || !read_ || before->own.thread != read_->own.thread || before->ticks >= now || since == 0) return;
  const std::int64_t elapsed_ns = read_->ns - before->ns;
  const double ns_per_tick = static_cast<double>(elapsed_ns) / static_cast<double>(now - before->ticks);
  const auto outside_ns = static_cast<std::int64_t>(static_cast<double>(now - since) * ns_per_tick);
  const Outside outside = split_time(
      outside_ns, elapsed_ns,
      {read_->own.times.run_ns - before->own.times.run_ns, read_->own.times.delay_ns - before->own.times.delay_ns});
  const double elsewhere_us = static_cast<double>(read_->elsewhere - before->elsewhere) * ns_per_tick / 1000;
  const std::uint32_t number = at().sequence.load(std::memory_order_relaxed);
  Causes& causes = take_causes(number);
  causes.outside_us.store(outside.us, std::memory_order_relaxed);
  causes.run_us.store(outside.run_us, std::memory_order_relaxed);
  causes.delay_us.store(outside.delay_us, std::memory_order_relaxed);
  causes.elsewhere_us.store(static_cast<std::uint32_t>(std::min<double>(elsewhere_us, outside.us)),
                            std::memory_order_relaxed);
  causes.number.store(number, std::memory_order_release);
}

Causes& EventRing::take_causes(std::uint32_t number) {
  Causes& causes = ring_->causes[number % kCauses];
  if (causes.number.exchange(0, std::memory_order_relaxed) == number) return causes;
  std::atomic_thread_fence(std::memory_order_release);
  for (auto* const word :
       {&causes.outside_us, &causes.run_us, &causes.delay_us, &causes.elsewhere_us, &causes.data_from, &causes.data_us,
        &causes.room_at, &causes.room_us, &causes.inside_delay_us}) {
    word->store(0, std::memory_order_relaxed);
  }
  return causes;
}

void EventRing::note_delay() noexcept {
  const std::uint32_t number = at().sequence.load(std::memory_order_relaxed);
  if (std::exchange(links_of_, number) != number) {
    links_ = {};
    delayed_.reset();
    inside_delay_ns_ = 0;
  }
  auto own = guarded_result([&] { return own_times(Whose::kThread); });
  if (!own.is_ok()) return;
  const std::optional<OwnTimes> before = std::exchange(delayed_, *own);
  if (before && before->thread == own->thread) inside_delay_ns_ += own->times.delay_ns - before->times.delay_ns;
}

void EventRing::note_link(int peer, bool sends, std::int64_t ns) {
  const std::uint32_t number = at().sequence.load(std::memory_order_relaxed);
  if (at().transfer.load(std::memory_order_relaxed) != 0) return;
  if (std::exchange(links_of_, number) != number) links_ = {};
  const auto link = std::find_if(links_.begin(), links_.end(),
                                 [peer](const LinkWait& wait) { return wait.peer == peer || wait.peer < 0; });
  if (link == links_.end()) return;
  link->peer = peer;
  std::int64_t& waited_ns = sends ? link->room_ns : link->data_ns;
  waited_ns += ns;
  // Each other rank of the row has waited for less.
  Causes& row = ring_->causes[number % kCauses];
  const Word<std::uint32_t>& noted = sends ? row.room_us : row.data_us;
  const auto us = static_cast<std::uint32_t>(std::min<std::int64_t>(waited_ns / 1000, UINT32_MAX));
  if (us < kLongMs * 1000) return;
  if (row.number.load(std::memory_order_relaxed) == number && noted.load(std::memory_order_relaxed) >= us) return;
  Causes& causes = take_causes(number);
  (sends ? causes.room_at : causes.data_from).store(static_cast<std::uint32_t>(peer) + 1, std::memory_order_relaxed);
  (sends ? causes.room_us : causes.data_us).store(us, std::memory_order_relaxed);
  causes.inside_delay_us.store(static_cast<std::uint32_t>(std::min<std::uint64_t>(inside_delay_ns_ / 1000, UINT32_MAX)),
                               std::memory_order_relaxed);
  causes.number.store(number, std::memory_order_release);
}

void EventRing::note_wait(std::int64_t waited_ms, const std::vector<int>& awaited) {
  at().waited_ms.store(waited_ms, std::memory_order_relaxed);
  at().awaiting.store(static_cast<std::uint32_t>(awaited.size()), std::memory_order_relaxed);
  for (std::size_t i = 0; i < std::min<std::size_t>(awaited.size(), kAwaited); ++i) {
    at().awaited[i].store(awaited[i], std::memory_order_relaxed);
  }
  at().seen_ns.store(set_mark(), std::memory_order_relaxed);
  const auto ms = static_cast<std::uint32_t>(std::clamp<std::int64_t>(waited_ms, 1, UINT32_MAX));
  if (waited_ms >= kLongMs && ms > longest_.ms) longest_ = {ms, awaited.empty() ? -1 : awaited.front()};
  if (awaited.empty() || at().transfer.load(std::memory_order_relaxed) != 0) return;
  Word<std::uint64_t>& longest = event(at().sequence.load(std::memory_order_relaxed)).waited;
  if (ms <= static_cast<std::uint32_t>(longest.load(std::memory_order_relaxed))) return;
  longest.store(static_cast<std::uint64_t>(awaited.front() + 1) << 32 | ms, std::memory_order_relaxed);
}

void EventRing::set_transfer(bool sends, int peer, std::uint64_t bytes) {
  at().transfer_peer.store(peer, std::memory_order_relaxed);
  at().transfer_bytes.store(bytes, std::memory_order_relaxed);
  at().transfer.store(sends ? 1 : 2, std::memory_order_relaxed);
  if (records()) entered_ = ticks();
  if (ranges_ != nullptr) begin_range(sends ? kSends : kReceives, bytes);
}

void EventRing::set_behind(bool behind) noexcept {
  // As set_inside(): what the rank was in then stays to be read.
  if (has_failed()) return;
  const bool was = at().behind_since_ns.load(std::memory_order_relaxed) != 0;
  if (behind != was) at().behind_since_ns.store(behind ? now_ns() : 0, std::memory_order_relaxed);
}

void EventRing::begin_range(int kind, std::uint64_t bytes) {
  // Several collectives that run as one have the range of the first.
  if (in_range_) return;
  range_ = ranges_->begin(kind, bytes);
  in_range_ = true;
}

void EventRing::begin_range() {
  const Event& last = event(at().sequence.load(std::memory_order_relaxed));
  const std::uint32_t call = last.call.load(std::memory_order_relaxed);
  const auto collective = static_cast<Collective>(call % kCollectiveWords);
  const auto type = static_cast<DataType>(call / kCollectiveWords % kTypeWords);
  const std::uint64_t count = last.count.load(std::memory_order_relaxed);
  std::uint64_t bytes = count * size_of(type);
  if (type == DataType::kOpaque) bytes = (count >> kOpaqueShift) * (count & kMostOpaqueCount);
  // Its count is a hash of several.
  if (varies(collective)) bytes = 0;
  begin_range(static_cast<int>(collective), bytes);
}

void EventRing::end_range() {
  if (in_range_) ranges_->end(range_);
  in_range_ = false;
}

void EventRing::set_hosts(std::size_t hosts) {
  if (measures_ != nullptr) measures_->hosts.store(hosts, std::memory_order_relaxed);
}

void EventRing::set_sent(std::function<AllSent()> sent) {
  if (measures_ == nullptr) return;
  sent_ = std::move(sent);
  next_sent_ = 0;
}

void EventRing::tell_sent() {
  if (sent_) note_sent(ticks());
  sent_ = nullptr;
  next_sent_ = ~std::uint64_t{0};
}

void EventRing::note_sent(std::uint64_t now) {
  // Without memory, the next call does it.
  const Status noted = guarded([this] { return observe::set_sent(*measures_, sent_()), Status(); });
  (void)noted;
  constexpr std::uint64_t kPauseNs = 50'000'000;
  constexpr std::int64_t kManyTicks = 1'000'000;
  next_sent_ = now + kPauseNs * kManyTicks / std::max<std::uint64_t>(ns_of_ticks(kManyTicks), 1);
}

void EventRing::measure(Measured operation, const Times& times) {
  if (measures_ == nullptr) return;
  operation.ns += ns_of_ticks(static_cast<std::int64_t>(times.ended - times.begun));
  add(*measures_, operation);
  // Of several operations that run together, the first one has it.
  add(*measures_, operation.kind, operation.bytes, std::exchange(longest_, {}));
  if (times.ended >= next_sent_) [[unlikely]]
    note_sent(times.ended);
}

void EventRing::measure_collective(Collective collective, std::uint64_t bytes) {
  const std::uint32_t number = at().sequence.load(std::memory_order_relaxed);
  const Event& call = event(number);
  const Times times{call.begun.load(std::memory_order_relaxed), ticks()};
  end_last(times.ended);
  if (trace_ != nullptr) {
    trace_->add_collective(
        {number, call.call.load(std::memory_order_relaxed), call.root.load(std::memory_order_relaxed),
         call.count.load(std::memory_order_relaxed), call.plan.load(std::memory_order_relaxed)},
        times, call.waited.load(std::memory_order_relaxed));
    add_steps(number);
  }
  measure({static_cast<int>(collective), bytes, 0, number}, times);
}

// If the executor has kept the steps of this operation, which has ended. Of several that have run as one, they are the
// first one's.
void EventRing::add_steps(std::uint32_t number) {
  if (!steps_->wanted() || steps_->operation().number != number) return;
  trace_->add_steps(*steps_);
  steps_->forget();
  if (!job_) return;
  // If there is no memory for the text, the trace has no predictions.
  const Status named = guarded([this] {
    trace_->name_job(std::exchange(job_, nullptr)());
    return Status();
  });
  (void)named;
}

void EventRing::begin_parts() {
  entered_ = event(at().sequence.load(std::memory_order_relaxed)).begun.load(std::memory_order_relaxed);
}

// The times of all parts together are the time of the whole.
void EventRing::measure_part(const CallWords& call, Collective collective, std::uint64_t bytes, std::uint64_t all_bytes,
                             std::uint64_t ended) {
  const Times times{entered_, ended};
  if (trace_ != nullptr) {
    trace_->add_collective(call, times, 0);
    add_steps(call.number);
  }
  // In parts of 2^20 at least, without floating-point arithmetic: the program may trap exceptions.
  const int shift = std::max(0, static_cast<int>(std::bit_width(all_bytes)) - 20);
  const std::uint64_t own = (ended - entered_) * (bytes >> shift) / std::max<std::uint64_t>(all_bytes >> shift, 1);
  measure({static_cast<int>(collective), bytes, 0, call.number}, {entered_, entered_ + own});
}

void EventRing::measure_transfer(bool sends, int peer, std::uint64_t bytes, std::uint64_t ended) {
  const Times times{entered_, ended};
  if (trace_ != nullptr) {
    trace_->add_transfer(sends, peer, bytes, times);
    steps_->forget();  // a transfer has one step, of which the trace has as much already
  }
  measure({sends ? kSends : kReceives, bytes, 0, 0}, times);
}

void EventRing::begin_agreement(std::string_view call) {
  std::array<char, 64>& text = at().agreement;
  const std::size_t length = std::min(call.size(), text.size() - 1);
  std::memcpy(text.data(), call.data(), length);
  text[length] = '\0';
  at().agreeing_since_ns.store(now_ns(), std::memory_order_release);
}

EventRing::Agreeing::Agreeing(EventRing& ring, std::string_view call) : ring_(&ring) {
  if (ring.at().agreeing_since_ns.load(std::memory_order_relaxed) != 0) {
    ring_ = nullptr;
    return;
  }
  ring.begin_agreement(call);
}

EventRing::Agreeing::~Agreeing() {
  if (ring_ != nullptr) ring_->at().agreeing_since_ns.store(0, std::memory_order_relaxed);
}

void EventRing::fail(std::string_view error) {
  if (has_failed()) return;
  std::memcpy(at().failure.data(), error.data(), std::min(error.size(), at().failure.size() - 1));
  at().failed_ns.store(set_mark(), std::memory_order_relaxed);
  const bool inside = at().inside.load(std::memory_order_relaxed) != 0;
  at().failed.store(inside ? Position::kInside : Position::kOutside, std::memory_order_release);
}

std::int64_t EventRing::set_mark() {
  const Moment now = moment_now();
  at().mark_ticks.store(now.ticks, std::memory_order_relaxed);
  at().mark_ns.store(now.ns, std::memory_order_release);
  return now.ns;
}

}  // namespace tutti::internal::observe
