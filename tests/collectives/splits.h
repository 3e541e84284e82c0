// Shared parts of the tests of split communicators: the expected groups of a plain model, and the requirements for a
// communicator of a group.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "job.h"

namespace tutti::internal::test {

// The requests of the ranks of a communicator, by rank.
struct Colors {
  std::vector<int> colors;
  std::vector<int> keys;
};

// A communicator and its members: ranks of the first communicator of the job, by rank here.
struct Split {
  tuttiComm_t comm = nullptr;
  std::vector<int> members;
  int rank = 0;

  [[nodiscard]] int ranks() const { return static_cast<int>(members.size()); }
};

inline Split whole(tuttiComm_t comm, int rank, int ranks) {
  Split all{comm, {}, rank};
  for (int r = 0; r < ranks; ++r) all.members.push_back(r);
  return all;
}

inline Colors draw_colors(std::mt19937& random, int ranks) {
  Colors drawn;
  const unsigned colors = 1 + random() % 4;
  for (int r = 0; r < ranks; ++r) {
    const auto color = static_cast<int>(random() % (colors + 1)) - 1;
    drawn.colors.push_back(color < 0 ? TUTTI_SPLIT_NOCOLOR : color * 1000);
    drawn.keys.push_back(static_cast<int>(random() % 7) - 3);
  }
  return drawn;
}

// The group of `rank`, by the definition: sorted by key and then by rank. Empty: it has no color.
inline std::vector<int> group_of(const Colors& asked, int rank) {
  const int color = asked.colors[static_cast<std::size_t>(rank)];
  std::vector<std::pair<int, int>> sorted;
  for (std::size_t r = 0; r < asked.colors.size(); ++r) {
    if (asked.colors[r] == color && color != TUTTI_SPLIT_NOCOLOR) sorted.emplace_back(asked.keys[r], r);
  }
  std::sort(sorted.begin(), sorted.end());
  std::vector<int> ranks;
  for (const auto& [key, r] : sorted) ranks.push_back(r);
  return ranks;
}

// Empty, or why it is not the communicator of its members: their numbers, their messages, and their sums.
inline std::string check_members(const Split& split) {
  int rank = -1;
  int ranks = -1;
  if (tuttiCommUserRank(split.comm, &rank) != tuttiSuccess || tuttiCommCount(split.comm, &ranks) != tuttiSuccess) {
    return tuttiGetLastError(nullptr);
  }
  if (rank != split.rank || ranks != split.ranks()) {
    return "is rank " + std::to_string(rank) + " of " + std::to_string(ranks) + ", not " + std::to_string(split.rank) +
           " of " + std::to_string(split.ranks());
  }
  const std::int32_t own = split.members[static_cast<std::size_t>(rank)];
  std::vector<std::int32_t> met(split.members.size(), -1);
  if (tuttiAllGather(&own, met.data(), 1, tuttiInt32, split.comm, nullptr) != tuttiSuccess) {
    return tuttiGetLastError(split.comm);
  }
  if (met != split.members) return "meets other ranks";
  std::int64_t sum = own;
  std::int64_t expected = 0;
  for (const int member : split.members) expected += member;
  if (tuttiAllReduce(&sum, &sum, 1, tuttiInt64, tuttiSum, split.comm, nullptr) != tuttiSuccess) {
    return tuttiGetLastError(split.comm);
  }
  return sum == expected ? "" : "a wrong sum";
}

// *made: comm is null if this rank has no color. Empty, or what is wrong.
inline std::string split_as(const Split& parent, const Colors& asked, Split* made,
                            const tuttiConfig_t* config = nullptr) {
  const auto at = static_cast<std::size_t>(parent.rank);
  made->comm = parent.comm;  // must be overwritten
  if (tuttiCommSplit(parent.comm, asked.colors[at], asked.keys[at], &made->comm, config) != tuttiSuccess) {
    return std::string("split: ") + tuttiGetLastError(parent.comm);
  }
  made->members.clear();
  made->rank = 0;
  for (const int r : group_of(asked, parent.rank)) {
    if (r == parent.rank) made->rank = made->ranks();
    made->members.push_back(parent.members[static_cast<std::size_t>(r)]);
  }
  if (made->members.empty() != (made->comm == nullptr)) return "a communicator without a color, or none with one";
  return made->comm == nullptr ? "" : check_members(*made);
}

// All of them with one color, in the same order.
inline Colors all_alike(int ranks) {
  return {std::vector<int>(static_cast<std::size_t>(ranks), 0), std::vector<int>(static_cast<std::size_t>(ranks), 0)};
}

}  // namespace tutti::internal::test
