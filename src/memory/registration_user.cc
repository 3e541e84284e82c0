#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "memory/registration.h"

namespace tutti::internal::memory {
namespace {

using Range = MemoryMonitor::Range;

// Memory that could not be registered is tried again after 1, 2, 4... operations.
constexpr std::uint64_t kMostNegativeOperations = 256;
constexpr std::size_t kMostNegativeEntries = 64;

Range whole_pages(const Source& source) {
  const std::size_t page = MemoryMonitor::page_bytes();
  const auto begin = reinterpret_cast<std::uintptr_t>(source.base) + source.begin;
  const auto end = reinterpret_cast<std::uintptr_t>(source.base) + source.size;
  return {reinterpret_cast<const std::byte*>(begin / page * page),
          reinterpret_cast<const std::byte*>((end + page - 1) / page * page)};
}

}  // namespace

RegistrationUser::~RegistrationUser() {
  if (!held_.empty()) cache_.release(held_);
}

void RegistrationUser::begin_operation() {
  ++operation_;
  asked_ = false;
  refused_.clear();
  if (!held_.empty()) {
    cache_.release(held_);
    held_.clear();
  }
  cache_.catch_up();
  if (negative_entries_.size() > kMostNegativeEntries)
    negative_entries_.erase(negative_entries_.begin(), negative_entries_.end() - kMostNegativeEntries);
}

const RdmaKeys* RegistrationUser::find(const Source& source) noexcept {
  if (!asked_) {
    // If there is no memory to process changes, the cache may be invalid.
    const Status heard = guarded([&] {
      drained_ = cache_.watch_ != nullptr && cache_.watch_->drain();
      cache_.catch_up();
      return Status();
    });
    if (!heard.is_ok()) return nullptr;
    asked_ = true;
  }
  if (source.size <= source.begin) return nullptr;
  const Range range = whole_pages(source);
  const RdmaKeys* keys = find_held(range);
  if (keys != nullptr || is_refused(range)) return keys;
  const Status done = guarded([&] {
    keys = cache_.find(range, source.region, this);
    if (keys == nullptr) refused_.push_back(range);
    return Status();
  });
  return done.is_ok() ? keys : nullptr;
}

// Of the entries that begin before the range, it checks only the last, which reaches farthest except for retired ones.
// The cache finds what this misses.
const RdmaKeys* RegistrationUser::find_held(Range range) const {
  const auto behind = std::upper_bound(held_.begin(), held_.end(), range.begin,
                                       [](const std::byte* at, const Element* entry) { return at < entry->first; });
  if (behind == held_.begin()) return nullptr;
  const Element& entry = **std::prev(behind);
  return entry.second.end >= range.end ? &entry.second.keys : nullptr;
}

bool RegistrationUser::is_refused(Range range) const {
  return std::any_of(refused_.rbegin(), refused_.rend(),
                     [&](const Range& refused) { return refused.begin == range.begin && refused.end == range.end; });
}

bool RegistrationUser::holds(const Element* entry) const {
  const auto [first, last] = std::equal_range(held_.begin(), held_.end(), entry, begins_before);
  return std::find(first, last, entry) != last;
}

void RegistrationUser::hold(Element* entry) {
  held_.insert(std::upper_bound(held_.begin(), held_.end(), entry, begins_before), entry);
}

bool RegistrationUser::has_negative_entry(Range range) const {
  return std::any_of(negative_entries_.begin(), negative_entries_.end(), [&](const NegativeEntry& e) {
    return operation_ < e.until && range.begin <= e.range.begin && range.end >= e.range.end;
  });
}

void RegistrationUser::add_negative_entry(Range range) {
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
