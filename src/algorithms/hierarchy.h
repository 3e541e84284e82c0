// Nested groups of ranks for hierarchical algorithms: sites, hosts, packages, NUMA nodes.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "algorithms/group.h"
#include "algorithms/hosts.h"
#include "base/status.h"

namespace tutti::internal::algorithms {

// Divisions of all ranks, the coarsest first; each divides the groups of the one before. Constant after construction;
// copies share the data. Any thread.
class Hierarchy {
 public:
  Hierarchy() = default;
  // Leaves out divisions that say nothing: with all ranks in one group, with one rank in each group, or equal to the
  // division before.
  explicit Hierarchy(std::vector<Hosts> divisions);

  [[nodiscard]] bool empty() const { return data_ == nullptr; }
  [[nodiscard]] std::size_t size() const { return divisions().size(); }
  [[nodiscard]] const Hosts& operator[](std::size_t i) const { return divisions()[i]; }
  [[nodiscard]] const std::vector<Hosts>& divisions() const;
  // Only the coarsest divisions, at most `count`.
  [[nodiscard]] Hierarchy outermost(std::size_t count) const;
  // kInvalidArgument if a division has another number of ranks than `ranks`, or does not divide the groups of the
  // division before.
  [[nodiscard]] Status check(int ranks) const;
  // Whether the groups of each division are.
  [[nodiscard]] bool are_equal() const { return data_ == nullptr || data_->equal; }
  [[nodiscard]] bool are_in_order() const { return data_ == nullptr || data_->in_order; }
  // The groups of division i that are in group g of the one before; for the first division, all (g is 0).
  [[nodiscard]] const std::vector<int>& inside(std::size_t i, int g) const {
    return data_->inside[i][static_cast<std::size_t>(g)];
  }
  bool operator==(const Hierarchy& other) const { return data_ == other.data_ || divisions() == other.divisions(); }

 private:
  struct Data {
    std::vector<Hosts> divisions;
    // By division and group of the one before; empty if all groups are equal and in order, so that they can be
    // computed.
    std::vector<std::vector<std::vector<int>>> inside;
    bool equal = true;
    bool in_order = true;
    const char* trouble = nullptr;  // why check() refuses them for every number of ranks
  };
  std::shared_ptr<const Data> data_;  // null: none
};

// The hierarchy from the view of one rank, by levels: level 0 is between the groups of the first division; level i
// between the groups of division i inside one group of the one before; the last level between the ranks of one group of
// the last division.
class Levels {
 public:
  // REQUIRES: hierarchy.check() and not empty(); `me` is one of the ranks.
  Levels(const Hierarchy& hierarchy, int ranks, int me);

  [[nodiscard]] std::size_t innermost() const { return all_.size(); }
  // The ranks whose position differs from this rank's only at this level. REQUIRES: the groups of each division are
  // equal.
  [[nodiscard]] Group peers(std::size_t level) const;
  // For each group in which ranks differ at this level (the groups of the division before; at level 0 all ranks): its
  // ranks with this rank's position at all inner levels, in the order of their positions at this level. REQUIRES: as
  // peers(); level > 0.
  [[nodiscard]] std::vector<std::vector<int>> layer(std::size_t level) const;

  // The leader of a group is the root if the group contains it, else the leader of its first inner group. The leader of
  // a group is also the leader of one group at each inner level. root -1: there is none.
  //
  // Whether this rank is among leaders().
  [[nodiscard]] bool leads(std::size_t level, int root) const;
  // The leaders of the groups at this level, in order; at the innermost level all ranks of the group. REQUIRES:
  // leads().
  [[nodiscard]] Group leaders(std::size_t level, int root) const;
  // The index of the one that leads all of them.
  [[nodiscard]] int head(std::size_t level, int root, const Group& leaders) const;

 private:
  [[nodiscard]] bool computed() const { return all_.are_equal() && all_.are_in_order(); }
  // Ranks of a group of division i, 1 behind the last; where they are computed.
  [[nodiscard]] int ranks_in(std::size_t i) const {
    return i == all_.size() ? 1 : static_cast<int>(all_[i].front().size());
  }
  // This rank's group of division i.
  [[nodiscard]] int group(std::size_t i) const { return static_cast<int>(all_[i].position_of(me_).host); }
  // Its group of the division before, in which it is at that level.
  [[nodiscard]] int outer_group(std::size_t level) const { return level == 0 ? 0 : group(level - 1); }
  [[nodiscard]] int leader_of(std::size_t i, int g, int root) const;
  // The rank in group g of division i with this rank's positions at the inner levels.
  [[nodiscard]] int counterpart_in(std::size_t i, int g) const;

  const Hierarchy& all_;
  const int ranks_;
  const int me_;
  std::vector<std::size_t> places_;  // by level: the index of this rank's group in the one around it
};

}  // namespace tutti::internal::algorithms
