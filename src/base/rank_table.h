// One value for each rank of a communicator, by rank. The values do not change, and the communicators that are split
// from one share them: a part costs an index for each of its ranks, and nothing if it has all of them in their order.
//
// Threads: any; not the same table.
#pragma once

#include <cstddef>
#include <iterator>
#include <memory>
#include <utility>
#include <vector>

namespace tutti::internal {

template <class T>
class RankTable {
 public:
  class Iterator {
   public:
    using iterator_category = std::forward_iterator_tag;
    using value_type = T;
    using difference_type = std::ptrdiff_t;
    using pointer = const T*;
    using reference = const T&;
    Iterator() = default;
    Iterator(const RankTable* table, std::size_t rank) : table_(table), rank_(rank) {}
    const T& operator*() const { return (*table_)[rank_]; }
    const T* operator->() const { return &(*table_)[rank_]; }
    Iterator& operator++() {
      ++rank_;
      return *this;
    }
    Iterator operator++(int) {
      const Iterator before = *this;
      ++rank_;
      return before;
    }
    bool operator==(const Iterator&) const = default;

   private:
    const RankTable* table_ = nullptr;
    std::size_t rank_ = 0;
  };

  RankTable() : RankTable(std::vector<T>()) {}
  RankTable(std::vector<T> all) : all_(std::make_shared<const std::vector<T>>(std::move(all))) {}

  // Of these ranks, which are numbered anew in this order.
  [[nodiscard]] RankTable part(const std::vector<int>& members) const {
    std::vector<int> of;
    of.reserve(members.size());
    bool same = members.size() == all_->size();
    for (std::size_t rank = 0; rank < members.size(); ++rank) {
      of.push_back(index_of(static_cast<std::size_t>(members[rank])));
      same = same && of.back() == static_cast<int>(rank);
    }
    RankTable result = *this;
    result.of_ = same ? nullptr : std::make_shared<const std::vector<int>>(std::move(of));
    return result;
  }
  [[nodiscard]] std::size_t size() const { return of_ != nullptr ? of_->size() : all_->size(); }
  // REQUIRES: rank < size().
  const T& operator[](std::size_t rank) const { return (*all_)[static_cast<std::size_t>(index_of(rank))]; }
  [[nodiscard]] const T& front() const { return (*this)[0]; }
  [[nodiscard]] Iterator begin() const { return {this, 0}; }
  [[nodiscard]] Iterator end() const { return {this, size()}; }

 private:
  [[nodiscard]] int index_of(std::size_t rank) const { return of_ != nullptr ? (*of_)[rank] : static_cast<int>(rank); }

  std::shared_ptr<const std::vector<T>> all_;
  std::shared_ptr<const std::vector<int>> of_;  // by rank, where its value is; null: at the same index
};

}  // namespace tutti::internal
