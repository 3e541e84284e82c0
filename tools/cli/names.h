// Reading collectives and hosts from the command line.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "algorithms/catalog.h"
#include "base/status.h"
#include "base/types.h"

namespace tutti::internal::tools {

// All collectives, by the names that name_of() gives, separated by ", ".
std::string all_collectives();
// Those whose blocks are all of one size.
std::string uniform_collectives();
// Also with underscores: "all_reduce" is "allreduce".
Result<Collective> parse_collective(const std::string& name);
// The algorithms of the collective, or of all collectives if it is empty.
std::string known_algorithms(std::optional<Collective> collective);
// That there is no such algorithm, which there are, and which other collectives have one of this name.
Status no_algorithm(const std::string& name, std::optional<Collective> collective);
// The algorithm of that name; or of a file, which is read and proven: of one the collective is the file's.
Result<const algorithms::AlgorithmEntry*> entry_of(const std::string& name_or_file, const std::string& collective);
// Whether it is meant to name a file: it has a "/" or ends with ".json".
bool names_file(const std::string& text);
// Of a collective without data 0, whatever was asked for. kInvalidArgument: more than 2^50.
Status fit_size(Collective collective, std::uint64_t* bytes);
// Sizes of hosts "4,4" as ranks in order; empty for an empty text. The sum must be `ranks`.
Result<algorithms::Hosts> parse_hosts(const std::string& sizes, int ranks);
// The same, with the sum of the sizes as the number of ranks, at most `most_ranks`.
Result<algorithms::World> parse_world(const std::string& sizes, int most_ranks);

}  // namespace tutti::internal::tools
