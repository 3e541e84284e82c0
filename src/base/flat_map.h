// A hash table from integers to small values, from which nothing is erased: in one allocation, while std::unordered_map
// makes one for each key. Schedules and their proofs have many such tables that live shortly.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/check.h"

namespace tutti::internal {

// Key: an unsigned integer; its largest value is not a key. Value: trivially copyable. Not thread-safe.
template <class Key, class Value>
class FlatMap {
 public:
  // The key's value, or nullptr. Valid until the next key is added.
  [[nodiscard]] const Value* find(Key key) const {
    if (slots_.empty()) return nullptr;
    const Slot& slot = slots_[slot_of(key)];
    return slot.key == key ? &slot.value : nullptr;
  }

  // The key's value, and whether the key is new; then its value is `initial`. Valid until the next key is added.
  std::pair<Value*, bool> add(Key key, Value initial) {
    debug_check(key != kNone, "the largest key is not used");
    if (4 * (size_ + 1) > 3 * slots_.size()) grow();
    Slot& slot = slots_[slot_of(key)];
    if (slot.key == key) return {&slot.value, false};
    slot = {key, initial};
    ++size_;
    return {&slot.value, true};
  }

 private:
  static constexpr Key kNone = ~Key{0};
  static constexpr std::size_t kFirstSlots = 16;

  struct Slot {
    Key key = kNone;
    Value value{};
  };

  // The slot of the key, or the free one where it belongs. REQUIRES: a slot is free.
  [[nodiscard]] std::size_t slot_of(Key key) const {
    const std::size_t mask = slots_.size() - 1;  // a power of two
    // Fibonacci hashing (Knuth, volume 3, 6.4): the upper bits of the product are mixed best.
    std::size_t at = (std::uint64_t{key} * 0x9e3779b97f4a7c15U >> 32) & mask;
    while (slots_[at].key != key && slots_[at].key != kNone) at = (at + 1) & mask;
    return at;
  }

  void grow() {
    std::vector<Slot> old(slots_.empty() ? kFirstSlots : 2 * slots_.size());
    old.swap(slots_);
    for (const Slot& slot : old) {
      if (slot.key != kNone) slots_[slot_of(slot.key)] = slot;
    }
  }

  std::vector<Slot> slots_;
  std::size_t size_ = 0;
};

}  // namespace tutti::internal
