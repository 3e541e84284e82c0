/* Distributes a vector over the blocks of the ranks for --skew: the counts grow linearly from the first rank to the
 * last, whose block is `skew` times the mean. Where the line is below 0, on the first ranks, blocks are empty: the
 * first block from a skew of about 2 on; all except the last if `skew` is the number of ranks. Skew 1 makes all blocks
 * equal. C99 and C++. */
#ifndef PERF_SKEW_H_
#define PERF_SKEW_H_

#include <stddef.h>

/* counts[0 .. ranks-1], `elements` in sum. REQUIRES: 1 <= skew <= ranks. */
static inline void skewed_counts(double skew, int ranks, size_t elements, size_t* counts) {
  /* In units of the largest block: the sum of all, the blocks that are not empty, and how much each is larger than the
   * one before, so that their sum is that. */
  const double sum = ranks / skew;
  int filled = ranks;
  double step;
  double before = 0;
  size_t placed = 0;
  int rank;
  while (filled > 1 && filled >= 2 * sum) --filled;
  step = filled > 1 ? 2 * (filled - sum) / ((double)filled * (filled - 1)) : 0;
  for (rank = 0; rank < ranks; ++rank) {
    size_t end = elements;
    if (ranks - 1 - rank < filled) before += 1 - (ranks - 1 - rank) * step;
    /* Rounds the ends of blocks, not their sizes, so that the sum stays exact. */
    if (rank < ranks - 1) end = (size_t)((double)elements * before / sum + 0.5);
    if (end > elements) end = elements;
    counts[rank] = end - placed;
    placed = end;
  }
}

#endif /* PERF_SKEW_H_ */
