// The problems that a run measures: all that the options select, except those that leave a rank without an element and
// those that do not fit into memory.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "expected.h"
#include "options.h"

namespace tutti::internal::perf {

struct Problems {
  std::vector<Problem> of_cycle;   // in nccl-tests' order: sizes vary fastest
  std::vector<std::string> notes;  // on what is left out
};

// `memory_bytes`: what each rank may have for its buffers.
Problems problems_of(const Options& options, int ranks, std::size_t memory_bytes);

// How far the buffers of the calls of one iteration are from each other.
std::size_t stride_bytes(const Problem& problem);

// Of this machine, what programs can still have, also within their control group (version 2).
// `root`: in place of the folder / (tests).
std::size_t available_memory_bytes(const std::string& root = "");

}  // namespace tutti::internal::perf
