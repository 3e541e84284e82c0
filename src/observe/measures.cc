#include "observe/measures.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <deque>
#include <utility>

#include "base/first_use.h"
#include "observe/origin.h"
#include "observe/tick_clock.h"
#include "os/fork.h"

namespace tutti::internal::observe {
namespace {

using Counter = std::atomic<std::uint64_t>;

// Of words with one writer.
void increase(Counter& word, std::uint64_t by) {
  word.store(word.load(std::memory_order_relaxed) + by, std::memory_order_relaxed);
}

std::uint64_t value(const Counter& word) {
  return word.load(std::memory_order_relaxed);
}

// In units of 2^-24 ns. No floating-point arithmetic: threads of the program use it, which may trap exceptions.
constexpr unsigned kShift = 24;
struct TickLength {
  std::uint64_t units = 0;
};

TickLength measure_ticks() {
  constexpr std::int64_t kLongEnoughNs = 1'000'000;
  const Moment before = moment_now();
  Moment after = before;
  while (after.ns - before.ns < kLongEnoughNs) after = moment_now();
  const std::uint64_t passed = std::max<std::uint64_t>(after.ticks - before.ticks, 1);
  return {(static_cast<std::uint64_t>(after.ns - before.ns) << kShift) / passed};
}

constinit FirstUse<TickLength> tick_length;

template <std::size_t size>
void write_text(std::array<char, size>* to, const std::string& text) {
  std::memcpy(to->data(), text.data(), std::min(size - 1, text.size()));
}

// Of a row with zeros, or with these texts.
void name_sent(Sent& row, const std::string& transport, const std::string& host) {
  if (value(row.used) != 0) return;
  write_text(&row.transport, transport);
  write_text(&row.host, host);
  row.used.store(1, std::memory_order_release);
}

constexpr std::size_t kMostEnded = 256;
constexpr std::uint64_t kUpperHalf = ~std::uint64_t{0} << 32;
constexpr std::uint64_t kMostNumbered = 1 << 20;

class Ended final : public ForkAware {
 public:
  Ended() { enlist(); }
  void before_fork() override TUTTI_ACQUIRE(mutex_) { mutex_.lock(); }
  void after_fork_in_parent() override TUTTI_RELEASE(mutex_) { mutex_.unlock(); }
  void after_fork_in_child() override TUTTI_RELEASE(mutex_) {
    keeps_ = false;
    mutex_.unlock();
  }
  std::uint64_t keep() {
    const MutexLock lock(mutex_);
    keeps_ = true;
    return count_;
  }
  void note(EndedMeasures ended) {
    const MutexLock lock(mutex_);
    if (!keeps_) return;
    if (list_.size() == kMostEnded) list_.pop_front();
    list_.push_back(std::move(ended));
    ++count_;
  }
  std::vector<EndedMeasures> after(std::uint64_t* position) {
    const MutexLock lock(mutex_);
    const auto missing = static_cast<std::size_t>(count_ - std::exchange(*position, count_));
    return {list_.end() - static_cast<std::ptrdiff_t>(std::min(missing, list_.size())), list_.end()};
  }

 private:
  Mutex mutex_;
  bool keeps_ TUTTI_GUARDED_BY(mutex_) = false;
  std::uint64_t count_ TUTTI_GUARDED_BY(mutex_) = 0;
  std::deque<EndedMeasures> list_ TUTTI_GUARDED_BY(mutex_);  // the last ones
};

constinit FirstUse<Ended, Surplus::kKept> ended_measures;

}  // namespace

std::uint64_t ns_of_ticks(std::int64_t ticks) {
  if (ticks <= 0) return 0;
  const std::uint64_t units = tick_length.get(measure_ticks).units;
  const auto all = static_cast<std::uint64_t>(ticks);
  // In two parts, so that neither product overflows.
  return ((all >> 32) * units << (32 - kShift)) + ((all & UINT32_MAX) * units >> kShift);
}

void add(Measures& measures, const Measured& operation) {
  Measure& measure = measures.kinds[static_cast<std::size_t>(operation.kind)][size_class(operation.bytes)];
  increase(measure.bytes, operation.bytes);
  increase(measure.ns, operation.ns);
  measure.last.store((value(measure.last) & kUpperHalf) | operation.number, std::memory_order_relaxed);
  increase(measure.calls[bucket_of(operation.ns)], 1);
}

void add(Measures& measures, int kind, std::uint64_t bytes, const LongWait& wait) {
  if (wait.ms == 0) return;
  increase(measures.waits, 1);
  increase(measures.waited_ms, wait.ms);
  Measure& measure = measures.kinds[static_cast<std::size_t>(kind)][size_class(bytes)];
  increase(measure.waited_ms, wait.ms);
  const auto rank = static_cast<std::uint64_t>(wait.rank + 1);
  measure.last.store((value(measure.last) & ~kUpperHalf) | rank << 32, std::memory_order_relaxed);
  if (rank == 0) return;
  for (Late& late : measures.late) {
    if (value(late.rank) == 0) late.rank.store(rank, std::memory_order_relaxed);
    if (value(late.rank) != rank) continue;
    increase(late.waits, 1);
    increase(late.waited_ms, wait.ms);
    return;
  }
}

void set_sent(Measures& measures, const AllSent& sent) {
  const auto is = [](const Sent& row, const std::string& transport, const std::string& host) {
    return text_of(row.transport) == transport && text_of(row.host) == host;
  };
  const auto store = [](Sent& row, const SentTo& to) {
    row.bytes.store(to.bytes, std::memory_order_relaxed);
    row.reconnects.store(to.reconnects, std::memory_order_relaxed);
  };
  SentTo others;
  bool has_others = false;
  for (const auto& [name, to] : sent) {
    const std::string transport = name.first.substr(0, sizeof(Sent::transport) - 1);
    const std::string host = name.second.substr(0, sizeof(Sent::host) - 1);
    const auto free = std::find_if(measures.sent.begin(), measures.sent.end() - 1,
                                   [&](const Sent& row) { return value(row.used) == 0 || is(row, transport, host); });
    if (free == measures.sent.end() - 1) {
      others = {others.bytes + to.bytes, others.reconnects + to.reconnects};
      has_others = true;
      continue;
    }
    name_sent(*free, transport, host);
    store(*free, to);
  }
  if (!has_others) return;
  name_sent(measures.sent.back(), kOthers, kOthers);
  store(measures.sent.back(), others);
}

std::uint64_t SeenMeasure::count() const {
  std::uint64_t sum = 0;
  for (const std::uint64_t in_bucket : calls) sum += in_bucket;
  return sum;
}

SeenMeasures read(const Measures& measures) {
  SeenMeasures seen;
  seen.hosts = static_cast<int>(std::min(value(measures.hosts), kMostNumbered));
  seen.waits = value(measures.waits);
  seen.waited_ms = value(measures.waited_ms);
  for (const Late& late : measures.late) {
    const std::uint64_t rank = value(late.rank);
    if (rank == 0 || rank > kMostNumbered) continue;
    seen.late.push_back({static_cast<int>(rank) - 1, value(late.waits), value(late.waited_ms)});
  }
  for (const Sent& row : measures.sent) {
    if (row.used.load(std::memory_order_acquire) != 1) continue;
    seen.sent.push_back({text_of(row.transport), text_of(row.host), {value(row.bytes), value(row.reconnects)}});
  }
  for (std::size_t kind = 0; kind < kKinds; ++kind) {
    for (std::size_t size = 0; size < kSizeClasses; ++size) {
      const Measure& measure = measures.kinds[kind][size];
      SeenMeasure one;
      for (std::size_t i = 0; i < kBuckets; ++i) one.calls[i] = value(measure.calls[i]);
      if (one.count() == 0) continue;
      one.kind = static_cast<int>(kind);
      one.size_class = size;
      one.bytes = value(measure.bytes);
      one.ns = value(measure.ns);
      one.waited_ms = value(measure.waited_ms);
      const std::uint64_t last = value(measure.last);
      one.last = static_cast<std::uint32_t>(last);
      one.awaited = static_cast<int>(std::min(last >> 32, kMostNumbered)) - 1;
      seen.operations.push_back(one);
    }
  }
  return seen;
}

std::uint64_t keep_ended() {
  return ended_measures.get().keep();
}

void note_ended(EndedMeasures ended) {
  ended_measures.get().note(std::move(ended));
}

std::vector<EndedMeasures> ended_after(std::uint64_t* position) {
  return ended_measures.get().after(position);
}

}  // namespace tutti::internal::observe
