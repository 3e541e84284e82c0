#include "memory/registration.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "memory/region.h"

namespace tutti::internal::memory {
namespace {

using Range = MemoryMonitor::Range;

// If a larger registration replaces an entry, its pages are registered again. Use must pay for that: this number of
// transferred bytes for each byte. A new entry starts with credit for one replacement, so the first growth is free. A
// buffer that grows with every operation is registered in few of them, and copied in the others.
constexpr std::size_t kPayback = 4;
constexpr std::size_t kMostCreditBytes = SIZE_MAX / 4;
// Devices have room for at least this many, and the kernel for the mappings that watching divides.
constexpr std::size_t kMostEntries = 4096;
// Number of attempts if memory changes while it is being registered.
constexpr int kAttempts = 3;

std::size_t size_of(Range range) {
  return static_cast<std::size_t>(range.end - range.begin);
}

}  // namespace

RegistrationCache::RegistrationCache(Registrar& registrar, MemoryMonitor* watch, std::size_t most_bytes)
    : registrar_(registrar), watch_(watch), most_bytes_(most_bytes) {
  if (watch_ != nullptr) seen_ = watch_->count();
  region_generation_ = RegionRegistry::instance().generation();
}

RegistrationCache::~RegistrationCache() {
  const MutexLock lock(mutex_);
  for (const Element& entry : retired_) deregister(entry);
  for (const Element& entry : entries_) deregister(entry);
}

void RegistrationCache::forget_all() {
  const MutexLock lock(mutex_);
  while (!entries_.empty()) retire(entries_.begin());
}

std::size_t RegistrationCache::registered_bytes() {
  const MutexLock lock(mutex_);
  return registered_bytes_;
}

const RdmaKeys* RegistrationCache::find(Range range, std::uint64_t region, RegistrationUser* user) {
  const MutexLock lock(mutex_);
  const auto entry = covering(range);
  if (entry == entries_.end() || (!user->drained_ && entry->second.region == 0)) return add(range, region, user);
  give(&*entry, size_of(range), user);
  return &entry->second.keys;
}

void RegistrationCache::release(const std::vector<Element*>& held) {
  const MutexLock lock(mutex_);
  for (Element* const entry : held) {
    if (--entry->second.holders > 0 || !entry->second.retired) continue;
    deregister(*entry);
    auto at = retired_.lower_bound(entry->first);
    while (&*at != entry) ++at;
    retired_.erase(at);
  }
}

void RegistrationCache::catch_up() {
  const bool same_regions = RegionRegistry::instance().generation() == region_generation_.load();
  if (same_regions && (watch_ == nullptr || watch_->count() == seen_.load())) return;
  const MutexLock lock(mutex_);
  apply_events();
}

// Processes the reports of the watch and of the registry of regions.
void RegistrationCache::apply_events() {
  const auto& regions = RegionRegistry::instance();
  if (const std::uint64_t now = regions.generation(); now != region_generation_) {
    region_generation_ = now;
    for (auto entry = entries_.begin(); entry != entries_.end();) {
      const auto next = std::next(entry);
      if (entry->second.region != 0 && !regions.exists(entry->second.region)) retire(entry);
      entry = next;
    }
  }
  if (watch_ == nullptr || watch_->count() == seen_) return;
  changed_.clear();
  std::uint64_t seen = seen_;
  const bool all = watch_->changes(&seen, &changed_);
  seen_ = seen;
  if (all) {
    for (const Range& range : changed_) drop(range);
  } else {
    drop({nullptr, reinterpret_cast<const std::byte*>(UINTPTR_MAX)});
  }
}

void RegistrationCache::drop(Range changed) {
  for (auto entry = first_overlapping(changed); entry != entries_.end() && entry->first < changed.end;) {
    const auto next = std::next(entry);
    // Regions are not watched; reports about their addresses are older than the regions.
    if (entry->second.region == 0) retire(entry);
    entry = next;
  }
}

// Operations that hold the entry still find it: nodes do not move in memory.
void RegistrationCache::retire(Entries::iterator entry) {
  auto node = entries_.extract(entry);
  if (node.mapped().holders > 0) {
    node.mapped().retired = true;
    retired_.insert(std::move(node));
  } else {
    registrar_.deregister(node.mapped().handle);
    registered_bytes_ -= static_cast<std::size_t>(node.mapped().end - node.key());
  }
}

void RegistrationCache::deregister(const Element& entry) {
  registrar_.deregister(entry.second.handle);
  registered_bytes_ -= static_cast<std::size_t>(entry.second.end - entry.first);
}

// Once per operation.
void RegistrationCache::give(Element* entry, std::size_t bytes, RegistrationUser* user) {
  if (user->holds(entry)) return;
  user->hold(entry);
  ++entry->second.holders;
  entry->second.last_use = ++uses_;
  entry->second.credit_bytes = std::min(entry->second.credit_bytes + bytes, kMostCreditBytes);
}

RegistrationCache::Entries::iterator RegistrationCache::first_overlapping(Range range) {
  auto entry = entries_.upper_bound(range.begin);
  while (entry != entries_.begin() && std::prev(entry)->second.end > range.begin) --entry;
  return entry != entries_.end() && entry->first < range.end ? entry : entries_.end();
}

RegistrationCache::Entries::iterator RegistrationCache::covering(Range range) {
  auto entry = entries_.upper_bound(range.begin);
  if (entry == entries_.begin()) return entries_.end();
  --entry;
  return entry->second.end >= range.end ? entry : entries_.end();
}

// The slow path after a miss. May throw for lack of memory; then all registrations are in entries_.
const RdmaKeys* RegistrationCache::add(Range range, std::uint64_t region, RegistrationUser* user) {
  if (user->has_negative_entry(range)) return nullptr;
  if (region == 0 && !user->drained_) {
    user->trouble_ = watch_ == nullptr ? "registered memory is not kept, because its unmapping cannot be detected"
                                       : "memory is being unmapped at this moment";
    return nullptr;
  }
  Status why;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    Range grown = range;
    std::size_t credit = 0;
    if (!may_grow(range, region, user, &grown, &credit)) {
      user->trouble_ = "registering the buffer together with overlapping buffers does not pay yet";
      return nullptr;
    }
    why = enter(grown, region, credit);
    // Retries without the neighbouring memory, which may have been unmapped.
    if (!why.is_ok() && size_of(grown) > size_of(range)) {
      grown = range;
      why = enter(grown, region, kPayback * size_of(grown));
    }
    if (!why.is_ok()) break;
    // A change of its pages before the registration has been reported by now, unless a thread changes the memory of
    // this operation itself.
    apply_events();
    const auto entry = covering(range);
    if (entry != entries_.end()) {
      give(&*entry, 0, user);
      return &entry->second.keys;
    }
    why = Status(Code::kSystemError, "memory changes while it is registered");
  }
  user->trouble_ = why.message();
  if (!std::exchange(logged_, true))
    log::warn("RDMA copies through its slots, because it cannot register memory: " + user->trouble_);
  user->add_negative_entry(range);
  return nullptr;
}

// The range to register for `range`. If little of it is already registered: the range itself. If much is: also all
// overlapping entries, which it replaces; false if that does not pay yet. Retires the replaced entries.
bool RegistrationCache::may_grow(Range range, std::uint64_t region, RegistrationUser* user, Range* grown,
                                 std::size_t* credit) {
  *grown = range;
  *credit = kPayback * size_of(range);
  const auto first = first_overlapping(range);
  auto last = first;
  std::size_t common_bytes = 0;
  std::size_t old_bytes = 0;
  std::size_t earned = 0;
  bool in_use = false;
  Range all = range;
  for (; last != entries_.end() && last->first < range.end; ++last) {
    const Range old{last->first, last->second.end};
    // Memory of an unknown region is not watched.
    if (last->second.region != region) return false;
    common_bytes += size_of({std::max(old.begin, range.begin), std::min(old.end, range.end)});
    all = {std::min(all.begin, old.begin), std::max(all.end, old.end)};
    old_bytes += size_of(old);
    earned = std::min(earned + last->second.credit_bytes, kMostCreditBytes);
    in_use = in_use || last->second.holders > 0;
  }
  if (common_bytes >= size_of(range) / 2 && common_bytes > 0) {
    if (size_of(all) > most_bytes_) {
      // Two entries that are used together and exceed the limit together would replace each other again and again.
      if (in_use) return false;
    } else if (earned < kPayback * old_bytes) {
      for (auto entry = first; entry != last; ++entry) give(&*entry, size_of(range), user);
      return false;
    } else {
      *grown = all;
      *credit = earned - kPayback * old_bytes;
    }
  }
  for (auto entry = first; entry != last;) {
    const auto next = std::next(entry);
    if (entry->first >= grown->begin && entry->second.end <= grown->end) retire(entry);
    entry = next;
  }
  return true;
}

// Watches, registers and keeps a range that contains no entry and is in none.
Status RegistrationCache::enter(Range range, std::uint64_t region, std::size_t credit) {
  const auto unable = [](const char* what) { return Status(Code::kSystemError, what); };
  if (!make_room(size_of(range))) return unable("the buffer is larger than all memory that may be registered");
  // Watches first, so that no change is missed.
  if (region == 0 && !watch_->watch(range))
    return unable("the kernel does not report all its changes, because it is shared or a file");
  const auto at = entries_.emplace(range.begin, Registered{range.end, region, 0, credit, 0, 0, false, {}}).first;
  Registered& made = at->second;
  const auto attempt = [&] {
    return registrar_.register_memory(range.begin, size_of(range), &made.keys, &made.handle);
  };
  Status s = guarded(attempt);
  if (s.code() == Code::kSystemError) {
    made.holders = 1;  // keeps it from being evicted, which would deregister it
    while (evict_one()) {
    }
    made.holders = 0;
    s = guarded(attempt);
  }
  if (!s.is_ok()) {
    entries_.erase(at);
    return s;
  }
  registered_bytes_ += size_of(range);
  // Now its pages are present, which shows whether they are shared.
  if (region == 0 && !watch_->watch(range)) {
    retire(at);
    return unable("the kernel does not report all its changes, because it is shared");
  }
  return {};
}

bool RegistrationCache::make_room(std::size_t bytes) {
  if (bytes > most_bytes_) return false;
  while (registered_bytes_ > most_bytes_ - bytes || entries_.size() >= kMostEntries) {
    if (!evict_one()) return false;
  }
  return true;
}

// Deregisters the least recently used entry that no operation holds. False if there is none.
bool RegistrationCache::evict_one() {
  auto oldest = entries_.end();
  for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
    if (entry->second.holders > 0) continue;
    if (oldest == entries_.end() || entry->second.last_use < oldest->second.last_use) oldest = entry;
  }
  if (oldest == entries_.end()) return false;
  retire(oldest);
  return true;
}

}  // namespace tutti::internal::memory
