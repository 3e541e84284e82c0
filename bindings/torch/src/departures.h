// Ranks that have left the process group, for ranks that wait at the store for a first message: no communicator of the
// two ranks is there yet that could tell them.
#pragma once

#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace tutti_torch {

// Both: `store` is the group's. Neither throws: a store that has failed tells nothing.

// This rank joins no further communicators of the group. Takes a second at most.
void announce_departure(c10d::Store& store, int rank);
// That `rank` has left, as an error says it; empty: it has not.
std::string told_of_departure(c10d::Store& store, int rank);

}  // namespace tutti_torch
