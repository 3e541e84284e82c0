// Combination trees, hash-consed: equal trees have equal numbers, where the two operands of a combination
// may be swapped. For verify*.cc only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/flat_map.h"

namespace tutti::internal::schedule::parts {

// A tree over the contributions of ranks 0 .. n - 1. Trees 0 .. n - 1 are the contributions themselves.
class Trees {
 public:
  using Id = std::uint32_t;
  static constexpr Id kNone = 0xffffffff;       // no value yet
  static constexpr Id kDuplicate = 0xfffffffe;  // it would contain some contribution twice

  explicit Trees(std::uint32_t ranks) : ranks_(ranks), nodes_(ranks), seen_(ranks, 0) {
    for (Id id = 0; id < ranks; ++id) nodes_[id].first = nodes_[id].last = id;
  }

  // The first and the last rank whose contribution is in the tree.
  [[nodiscard]] std::uint32_t first(Id id) const { return nodes_[id].first; }
  [[nodiscard]] std::uint32_t last(Id id) const { return nodes_[id].last; }

  // The number of contributions in the tree. If it equals the number of ranks, the tree has each of them once.
  [[nodiscard]] std::uint32_t size(Id id) const { return nodes_[id].size; }
  [[nodiscard]] bool complete(Id id) const { return size(id) == ranks_; }

  // Whether the tree has the contributions of the ranks before `end`, each once, and no others.
  [[nodiscard]] bool is_prefix(Id id, std::uint32_t end) {
    if (size(id) != end) return false;
    bool inside = true;
    return distinct(id, [&](Id leaf) { inside = inside && leaf < end; }) && inside;
  }

  // The combination of a and b, or kDuplicate. A duplicate is detected at the latest when the tree has its full size;
  // until then no reduction is complete.
  Id combine(Id a, Id b) {
    const std::uint64_t low = std::min(a, b);
    const std::uint64_t high = std::max(a, b);
    const auto [id, is_new] = ids_.add(low << 32 | high, static_cast<Id>(nodes_.size()));
    if (!is_new) return *id;
    nodes_.push_back({a, b, size(a) + size(b), std::min(first(a), first(b)), std::max(last(a), last(b))});
    if (size(*id) > ranks_ || (complete(*id) && !distinct(*id, [](Id) {}))) *id = kDuplicate;
    return *id;
  }

 private:
  struct Node {
    Id left = kNone;
    Id right = kNone;
    std::uint32_t size = 1;
    std::uint32_t first = 0;
    std::uint32_t last = 0;
  };

  // Whether all leaves below the tree differ. Calls f(leaf) for each.
  template <class F>
  bool distinct(Id root, F f) {
    ++pass_;
    stack_.assign(1, root);
    while (!stack_.empty()) {
      const Id id = stack_.back();
      stack_.pop_back();
      if (id >= ranks_) {
        stack_.push_back(nodes_[id].left);
        stack_.push_back(nodes_[id].right);
      } else if (seen_[id] == pass_) {
        return false;
      } else {
        seen_[id] = pass_;
        f(id);
      }
    }
    return true;
  }

  std::uint32_t ranks_;
  std::vector<Node> nodes_;
  std::vector<std::uint64_t> seen_;  // per contribution: the last pass that has seen it
  std::uint64_t pass_ = 0;           // of distinct()
  std::vector<Id> stack_;
  FlatMap<std::uint64_t, Id> ids_;
};

}  // namespace tutti::internal::schedule::parts
