// A set of ranks, as rising ranges: all ranks of a communicator, or those below a rank of the control tree, are a few
// ranges.
//
// Threads: any; not the same object.
#pragma once

#include <vector>

namespace tutti::internal {

class RankSet {
 public:
  struct Range {
    int first = 0;
    int end = 0;  // behind the last rank
    bool operator==(const Range&) const = default;
  };
  RankSet() = default;
  // Empty if end <= first.
  RankSet(int first, int end);
  // The ranks below `ranks` for which is_in(rank).
  template <class F>
  static RankSet where(int ranks, F is_in) {
    RankSet result;
    for (int rank = 0; rank < ranks; ++rank) {
      if (is_in(rank)) result.append(rank, rank + 1);
    }
    return result;
  }

  void add(const RankSet& other);
  // REQUIRES: first < end, and all ranks of the set are lower.
  void append(int first, int end) {
    if (ranges_.empty() || ranges_.back().end != first) ranges_.push_back({first, first});
    ranges_.back().end = end;
  }
  [[nodiscard]] RankSet without(const RankSet& other) const;
  [[nodiscard]] RankSet common_with(const RankSet& other) const { return without(without(other)); }
  [[nodiscard]] bool contains(int rank) const;
  [[nodiscard]] bool contains(const RankSet& other) const { return other.without(*this).empty(); }
  [[nodiscard]] bool empty() const { return ranges_.empty(); }
  [[nodiscard]] int size() const;
  [[nodiscard]] int front() const { return ranges_.front().first; }  // REQUIRES: not empty
  // Rising; no range touches the next.
  [[nodiscard]] const std::vector<Range>& ranges() const { return ranges_; }
  // Calls `f` with each rank, lowest first.
  template <class F>
  void each(F f) const {
    for (const Range& range : ranges_) {
      for (int rank = range.first; rank < range.end; ++rank) f(rank);
    }
  }
  bool operator==(const RankSet&) const = default;

 private:
  std::vector<Range> ranges_;
};

}  // namespace tutti::internal
