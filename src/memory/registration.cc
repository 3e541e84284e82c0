#include "memory/registration.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "memory/region.h"

namespace tutti::internal::memory {
namespace {

using Range = MemoryMonitor::Range;

// A registration that a larger one replaces has its pages registered once more. That is paid for by use: so many
// bytes for each byte. A new entry has one such price in hand; so the first growth is free, and a buffer that grows
// with every operation is registered in few of them and copied in the rest.
constexpr std::size_t kPayback = 4;
constexpr std::size_t kMostCreditBytes = SIZE_MAX / 4;
// Devices have room for so many at least, and the kernel for the mappings that watching divides.
constexpr std::size_t kMostEntries = 4096;
// Memory changes while it is registered: so often it is tried again.
constexpr int kAttempts = 3;
// Memory that could not be registered is tried again after 1, 2, 4... operations.
constexpr std::uint64_t kMostNegativeOperations = 256;
constexpr std::size_t kMostNegativeEntries = 64;

std::size_t size_of(Range range) {
  return static_cast<std::size_t>(range.end - range.begin);
}

Range whole_pages(const Source& source) {
  const std::size_t page = MemoryMonitor::page_bytes();
  const auto begin = reinterpret_cast<std::uintptr_t>(source.base) + source.begin;
  const auto end = reinterpret_cast<std::uintptr_t>(source.base) + source.size;
  return {reinterpret_cast<const std::byte*>(begin / page * page),
          reinterpret_cast<const std::byte*>((end + page - 1) / page * page)};
}

}  // namespace

RegistrationCache::RegistrationCache(Registrar& registrar, MemoryMonitor* watch, std::size_t most_bytes)
    : registrar_(registrar), watch_(watch), most_bytes_(most_bytes) {
  if (watch_ != nullptr) seen_ = watch_->count();
  region_generation_ = RegionRegistry::instance().generation();
}

RegistrationCache::~RegistrationCache() {
  clear();
}

void RegistrationCache::clear() {
  for (const auto& entry : retired_) deregister(entry);
  for (const auto& entry : entries_) deregister(entry);
  retired_.clear();
  entries_.clear();
}

void RegistrationCache::begin_operation() {
  ++operation_;
  asked_ = false;
  for (const auto& entry : retired_) deregister(entry);
  retired_.clear();
  apply_events();
  if (negative_entries_.size() > kMostNegativeEntries)
    negative_entries_.erase(negative_entries_.begin(), negative_entries_.end() - kMostNegativeEntries);
}

// Takes note of what the watch and the registry of regions report.
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
  if (watch_->changes(&seen_, &changed_)) {
    for (const Range& range : changed_) drop(range);
  } else {
    drop({nullptr, reinterpret_cast<const std::byte*>(UINTPTR_MAX)});
  }
}

void RegistrationCache::drop(Range changed) {
  for (auto entry = first_overlapping(changed); entry != entries_.end() && entry->first < changed.end;) {
    const auto next = std::next(entry);
    // Regions are not watched; what is reported of their addresses is older than they.
    if (entry->second.region == 0) retire(entry);
    entry = next;
  }
}

void RegistrationCache::retire(Entries::iterator entry) {
  auto node = entries_.extract(entry);
  if (node.mapped().used_in == operation_) {
    retired_.insert(std::move(node));
  } else {
    registrar_.deregister(node.mapped().handle);
    registered_bytes_ -= static_cast<std::size_t>(node.mapped().end - node.key());
  }
}

void RegistrationCache::deregister(const Entries::value_type& entry) {
  registrar_.deregister(entry.second.handle);
  registered_bytes_ -= static_cast<std::size_t>(entry.second.end - entry.first);
}

void RegistrationCache::touch(Entry& entry, std::size_t bytes) const {
  if (entry.used_in == operation_) return;
  entry.used_in = operation_;
  entry.credit_bytes = std::min(entry.credit_bytes + bytes, kMostCreditBytes);
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

const RdmaKeys* RegistrationCache::find(const Source& source) noexcept {
  if (!asked_) {
    asked_ = true;
    drained_ = watch_ != nullptr && watch_->drain();
    apply_events();
  }
  if (source.size <= source.begin) return nullptr;
  const Range range = whole_pages(source);
  const auto entry = covering(range);
  if (entry != entries_.end() && (drained_ || entry->second.region != 0)) {
    touch(entry->second, size_of(range));
    return &entry->second.keys;
  }
  const RdmaKeys* keys = nullptr;
  const Status done = guarded([&] {
    keys = add(range, source.region);
    return Status();
  });
  return done.is_ok() ? keys : nullptr;
}

// The way of a miss. May throw for want of memory, with all that is registered in entries_.
const RdmaKeys* RegistrationCache::add(Range range, std::uint64_t region) {
  if (has_negative_entry(range)) return nullptr;
  if (region == 0 && !drained_) {
    trouble_ = watch_ == nullptr ? "no registered memory is kept, as nothing tells when it is unmapped"
                                 : "memory is being unmapped at this moment";
    return nullptr;
  }
  Status why;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    Range grown = range;
    std::size_t credit = 0;
    if (!may_grow(range, region, &grown, &credit)) {
      trouble_ = "it does not pay to register the buffer together with what overlaps it";
      return nullptr;
    }
    Entries::iterator entry;
    why = enter(grown, region, credit, &entry);
    // Without what was registered beside it, which may be no one's any more.
    if (!why.is_ok() && size_of(grown) > size_of(range)) {
      grown = range;
      why = enter(grown, region, kPayback * size_of(grown), &entry);
    }
    if (!why.is_ok()) break;
    // A change of its pages before they were registered has been reported by now, unless it comes from a thread that
    // changes this operation's own memory.
    apply_events();
    entry = covering(range);
    if (entry != entries_.end()) {
      touch(entry->second, 0);
      return &entry->second.keys;
    }
    why = Status(Code::kSystemError, "memory changes while it is registered");
  }
  add_negative_entry(range, why);
  return nullptr;
}

// What is to be registered for `range`. Little of it is registered already: itself. Much is: all that overlaps it as
// well, which it replaces, and false if that does not pay yet. Retires what is to be replaced.
bool RegistrationCache::may_grow(Range range, std::uint64_t region, Range* grown, std::size_t* credit) {
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
    // Memory of a region that is not known as such is not watched.
    if (last->second.region != region) return false;
    common_bytes += size_of({std::max(old.begin, range.begin), std::min(old.end, range.end)});
    all = {std::min(all.begin, old.begin), std::max(all.end, old.end)};
    old_bytes += size_of(old);
    earned = std::min(earned + last->second.credit_bytes, kMostCreditBytes);
    in_use = in_use || last->second.used_in == operation_;
  }
  if (common_bytes >= size_of(range) / 2 && common_bytes > 0) {
    if (size_of(all) > most_bytes_) {
      // Two that are used together and are too much together would replace each other for ever.
      if (in_use) return false;
    } else if (earned < kPayback * old_bytes) {
      for (auto entry = first; entry != last; ++entry) touch(entry->second, size_of(range));
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
Status RegistrationCache::enter(Range range, std::uint64_t region, std::size_t credit, Entries::iterator* entry) {
  const auto unable = [](const char* what) { return Status(Code::kSystemError, what); };
  if (!make_room(size_of(range))) return unable("it is more than may be registered at once");
  // First watched, so that no change is missed.
  if (region == 0 && !watch_->watch(range))
    return unable("its changes are not all reported, as it is shared or a file");
  const auto at = entries_.emplace(range.begin, Entry{range.end, region, 0, 0, credit, {}}).first;
  Entry& made = at->second;
  const auto attempt = [&] {
    return registrar_.register_memory(range.begin, size_of(range), &made.keys, &made.handle);
  };
  Status s = guarded(attempt);
  if (s.code() == Code::kSystemError) {
    made.used_in = operation_;  // keeps it from being evicted, which would deregister it
    while (evict_one()) {
    }
    made.used_in = 0;
    s = guarded(attempt);
  }
  if (!s.is_ok()) {
    entries_.erase(at);
    return s;
  }
  registered_bytes_ += size_of(range);
  // Now its pages are there, so that it shows whether they are shared.
  if (region == 0 && !watch_->watch(range)) {
    retire(at);
    return unable("it is shared, so that its changes are not all reported");
  }
  *entry = at;
  return {};
}

bool RegistrationCache::make_room(std::size_t bytes) {
  if (bytes > most_bytes_) return false;
  while (registered_bytes_ > most_bytes_ - bytes || entries_.size() >= kMostEntries) {
    if (!evict_one()) return false;
  }
  return true;
}

// Deregisters what this operation has not used and no other for longest. False if there is none.
bool RegistrationCache::evict_one() {
  auto oldest = entries_.end();
  for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
    if (entry->second.used_in == operation_) continue;
    if (oldest == entries_.end() || entry->second.used_in < oldest->second.used_in) oldest = entry;
  }
  if (oldest == entries_.end()) return false;
  retire(oldest);
  return true;
}

bool RegistrationCache::has_negative_entry(Range range) const {
  return std::any_of(negative_entries_.begin(), negative_entries_.end(), [&](const NegativeEntry& e) {
    return operation_ < e.until && range.begin <= e.range.begin && range.end >= e.range.end;
  });
}

void RegistrationCache::add_negative_entry(Range range, const Status& why) {
  trouble_ = why.message();
  if (!std::exchange(logged_, true))
    log::warn("RDMA copies through its slots where it cannot register memory: " + trouble_);
  const auto same = std::find_if(negative_entries_.begin(), negative_entries_.end(), [&](const NegativeEntry& e) {
    return range.begin == e.range.begin && range.end == e.range.end;
  });
  NegativeEntry entry{range, operation_ + 1, 1};
  if (same != negative_entries_.end()) {
    if (operation_ - same->until < kMostNegativeOperations)
      entry.operations = std::min(same->operations * 2, kMostNegativeOperations);
    negative_entries_.erase(same);
  }
  entry.until = operation_ + entry.operations;
  negative_entries_.push_back(entry);
}

}  // namespace tutti::internal::memory
