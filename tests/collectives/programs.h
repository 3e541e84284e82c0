// Random programs over several communicators of the same ranks: collectives, sends and receives, alone and in groups,
// blocking and in streams.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tutti/tutti.h"

namespace tutti::internal::test {

// One rank's place in a communicator, in which its number may differ.
struct Seat {
  tuttiComm_t comm = nullptr;
  int rank = 0;
};

// The number in communicator `c` of the rank that is `rank` in the first: the same, in reverse, shifted by one.
int number_in(int c, int rank, int ranks);

// `seats` gets `wanted` communicators: `comm`, with `ranks` ranks, is the first; the others are made by
// tuttiCommInitRank. Collective. Empty, or what is wrong.
std::string make_seats(tuttiComm_t comm, int rank, int ranks, int wanted, std::vector<Seat>* seats);
// Destroys all except the first.
std::string leave_seats(const std::vector<Seat>& seats);

struct ProgramSizes {
  std::uint32_t programs = 1;  // of the seeds 1 and up
  std::size_t phases = 6;
  std::size_t most_bytes = 2000;  // of a buffer
};

// This rank's part of all programs. Collective. Empty, or what is wrong.
std::string run_programs(const std::vector<Seat>& seats, int ranks, const ProgramSizes& sizes);

}  // namespace tutti::internal::test
