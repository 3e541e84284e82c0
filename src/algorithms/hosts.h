// The ranks on each host; or another division of ranks into groups.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <memory>
#include <vector>

#include "base/status.h"

namespace tutti::internal::algorithms {

// Constant after construction; copies share the data, at a cost independent of the number of ranks. Any thread.
class Hosts {
 public:
  using Lists = std::vector<std::vector<int>>;  // the ranks of each host, in their order there

  Hosts() = default;
  Hosts(Lists lists);  // NOLINT(google-explicit-constructor): is one
  Hosts(std::initializer_list<std::vector<int>> lists) : Hosts(Lists(lists)) {}

  [[nodiscard]] std::size_t size() const { return lists().size(); }
  [[nodiscard]] bool empty() const { return lists().empty(); }
  [[nodiscard]] const std::vector<int>& operator[](std::size_t host) const { return lists()[host]; }
  [[nodiscard]] const std::vector<int>& front() const { return lists().front(); }
  [[nodiscard]] Lists::const_iterator begin() const { return lists().begin(); }
  [[nodiscard]] Lists::const_iterator end() const { return lists().end(); }

  // kInvalidArgument if a host is empty, or if one of `ranks` ranks is on no host or on two. No hosts at all are valid.
  [[nodiscard]] Status check(int ranks) const;
  [[nodiscard]] bool are_equal() const { return data_ == nullptr || data_->equal; }
  [[nodiscard]] std::size_t ranks() const { return data_ == nullptr ? 0 : data_->ranks; }
  [[nodiscard]] std::size_t largest() const { return data_ == nullptr ? 0 : data_->largest; }
  // Ranks are numbered host after host.
  [[nodiscard]] bool are_in_order() const { return data_ == nullptr || data_->in_order; }

  struct Position {
    std::size_t host = 0;
    std::size_t local_rank = 0;  // among the members of the host
  };
  // REQUIRES: check(), and the rank is on one.
  [[nodiscard]] Position position_of(int rank) const;

  bool operator==(const Hosts& other) const { return data_ == other.data_ || lists() == other.lists(); }

 private:
  struct Data {
    Lists lists;
    std::vector<Position> positions;  // by rank; empty if they can be computed
    bool equal = true;
    bool in_order = true;
    std::size_t largest = 0;
    std::size_t ranks = 0;
    const char* trouble = nullptr;  // why check() refuses them for every number of ranks
  };
  [[nodiscard]] const Lists& lists() const;

  std::shared_ptr<const Data> data_;
};

}  // namespace tutti::internal::algorithms
