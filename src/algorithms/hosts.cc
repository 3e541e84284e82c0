#include "algorithms/hosts.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "base/first_use.h"

namespace tutti::internal::algorithms {

Hosts::Hosts(Lists lists) {
  auto data = std::make_shared<Data>();
  data->lists = std::move(lists);
  int next = 0;
  for (const auto& host : data->lists) {
    data->equal = data->equal && host.size() == data->lists.front().size();
    data->largest = std::max(data->largest, host.size());
    data->ranks += host.size();
    if (host.empty()) data->trouble = "a host has no ranks";
    for (const int rank : host) data->in_order = data->in_order && rank == next++;
  }
  if (data->trouble == nullptr && !(data->in_order && data->equal)) {
    std::vector<char> seen(data->ranks, 0);
    data->positions.resize(data->ranks);
    for (std::size_t h = 0; h < data->lists.size(); ++h) {
      for (std::size_t i = 0; i < data->lists[h].size(); ++i) {
        const auto rank = static_cast<std::size_t>(data->lists[h][i]);
        if (rank >= data->ranks || std::exchange(seen[rank], 1) != 0) {
          data->trouble = "a rank is on two hosts, or is not below their number";
          continue;
        }
        data->positions[rank] = {h, i};
      }
    }
  }
  data_ = std::move(data);
}

const Hosts::Lists& Hosts::lists() const {
  static constinit FirstUse<const Lists> none;
  return data_ == nullptr ? none.get() : data_->lists;
}

Status Hosts::check(int ranks) const {
  if (empty()) return {};
  if (data_->trouble != nullptr) return Status::invalid_argument(data_->trouble);
  if (data_->ranks == static_cast<std::size_t>(ranks)) return {};
  return Status::invalid_argument(fmt::format("the hosts have {} ranks, and there are {}", data_->ranks, ranks));
}

Hosts::Position Hosts::position_of(int rank) const {
  const auto r = static_cast<std::size_t>(rank);
  if (!data_->positions.empty()) return data_->positions[r];
  return {r / data_->largest, r % data_->largest};
}

}  // namespace tutti::internal::algorithms
