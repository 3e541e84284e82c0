// Folding, by which algorithms for powers of two support any group. With p the largest power of two that fits and r = n
// - p, members 2v and 2v + 1 for v < r act as one, represented by 2v. Folded member v < r represents members 2v and 2v
// + 1; folded member v >= r represents member v + r. Rabenseifner, Traeff: More efficient reduction algorithms for
// non-power-of-two number of processors in message-passing parallel systems, EuroPVM/MPI 2004, section 2.
#pragma once

#include "algorithms/group.h"

namespace tutti::internal::algorithms {

class Fold {
 public:
  explicit Fold(const Group& g) : g_(g), size_(power_of_two_below(g.size())), pairs_(g.size() - size_) {}

  // Number of folded members, a power of two.
  [[nodiscard]] int size() const { return size_; }
  // Whether this member has no folded index: it gives its values to partner() and takes the result from it.
  [[nodiscard]] bool gives_away() const { return paired() && g_.index() % 2 == 1; }
  [[nodiscard]] bool takes_in() const { return paired() && g_.index() % 2 == 0; }
  // The rank at the other end of the pair. REQUIRES: gives_away() or takes_in().
  [[nodiscard]] int partner() const { return g_.rank(g_.index() ^ 1); }
  // Folded index of this member. REQUIRES: not gives_away().
  [[nodiscard]] int index() const { return paired() ? g_.index() / 2 : g_.index() - pairs_; }
  // The first member that folded member v represents; for v == size(), the group's size.
  [[nodiscard]] int member(int v) const { return v < pairs_ ? 2 * v : v + pairs_; }
  [[nodiscard]] int rank(int v) const { return g_.rank(member(v)); }

 private:
  [[nodiscard]] bool paired() const { return g_.index() < 2 * pairs_; }

  const Group& g_;
  int size_;
  int pairs_;
};

}  // namespace tutti::internal::algorithms
