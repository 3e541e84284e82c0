#include "control/rank_set.h"

#include <algorithm>
#include <iterator>

namespace tutti::internal {

RankSet::RankSet(int first, int end) {
  if (end > first) ranges_.push_back({first, end});
}

void RankSet::add(const RankSet& other) {
  if (other.empty()) return;
  std::vector<Range> all;
  all.reserve(ranges_.size() + other.ranges_.size());
  std::merge(ranges_.begin(), ranges_.end(), other.ranges_.begin(), other.ranges_.end(), std::back_inserter(all),
             [](const Range& a, const Range& b) { return a.first < b.first; });
  ranges_.clear();
  for (const Range& range : all) {
    if (!ranges_.empty() && range.first <= ranges_.back().end) {
      ranges_.back().end = std::max(ranges_.back().end, range.end);
    } else {
      ranges_.push_back(range);
    }
  }
}

RankSet RankSet::without(const RankSet& other) const {
  RankSet rest;
  auto cut = other.ranges_.begin();
  for (Range range : ranges_) {
    while (cut != other.ranges_.end() && cut->end <= range.first) ++cut;
    for (auto next = cut; next != other.ranges_.end() && next->first < range.end; ++next) {
      if (next->first > range.first) rest.ranges_.push_back({range.first, next->first});
      range.first = std::max(range.first, next->end);
    }
    if (range.first < range.end) rest.ranges_.push_back(range);
  }
  return rest;
}

bool RankSet::contains(int rank) const {
  const auto next = std::upper_bound(ranges_.begin(), ranges_.end(), rank,
                                     [](int wanted, const Range& range) { return wanted < range.end; });
  return next != ranges_.end() && next->first <= rank;
}

int RankSet::size() const {
  int size = 0;
  for (const Range& range : ranges_) size += range.end - range.first;
  return size;
}

}  // namespace tutti::internal
