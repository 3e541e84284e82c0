// The positions of ranks: the host, and the local rank on it.
#pragma once

#include <cstddef>

#include "algorithms/hosts.h"

namespace tutti::internal::algorithms {

// The positions on the given hosts, or, without hosts, on a single host with all ranks. Construction takes constant
// time. Any thread.
class Places {
 public:
  // REQUIRES: hosts.check(ranks).
  Places(int ranks, const Hosts& hosts) : ranks_(ranks), lists_(hosts) {}

  [[nodiscard]] int ranks() const { return ranks_; }
  [[nodiscard]] int hosts() const { return lists_.empty() ? 1 : static_cast<int>(lists_.size()); }
  // Of the host. REQUIRES: 0 <= host < hosts().
  [[nodiscard]] int local_ranks(int host) const {
    return lists_.empty() ? ranks_ : static_cast<int>(lists_[static_cast<std::size_t>(host)].size());
  }
  [[nodiscard]] int most_local_ranks() const { return lists_.empty() ? ranks_ : static_cast<int>(lists_.largest()); }
  // All hosts have the same number of ranks.
  [[nodiscard]] bool hosts_are_equal() const { return lists_.are_equal(); }
  // Ranks are numbered host after host.
  [[nodiscard]] bool hosts_are_in_order() const { return lists_.are_in_order(); }

  // REQUIRES: 0 <= host < hosts(), 0 <= local_rank < local_ranks(host).
  [[nodiscard]] int rank_of(int host, int local_rank) const {
    if (lists_.empty()) return local_rank;
    return lists_[static_cast<std::size_t>(host)][static_cast<std::size_t>(local_rank)];
  }
  // REQUIRES: 0 <= rank < ranks().
  [[nodiscard]] Hosts::Position position_of(int rank) const {
    return lists_.empty() ? Hosts::Position{0, static_cast<std::size_t>(rank)} : lists_.position_of(rank);
  }

 private:
  const int ranks_;
  const Hosts lists_;
};

}  // namespace tutti::internal::algorithms
