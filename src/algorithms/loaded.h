// Algorithms from files (TUTTI_SCHEDULES): candidates like those of the catalog.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "algorithms/catalog.h"
#include "algorithms/program.h"

namespace tutti::internal::algorithms {

// Reads the files, whose names are separated by commas, and keeps their algorithms for the life of the process. A file
// with the same text is not read again. kInvalidUsage with file, line and field; also for a used name, and for an
// algorithm that cannot be proven: each file is proven for sample_worlds(), with every root, before it becomes a
// candidate. Any thread.
Status load_schedules(const std::string& files);
// An entry for a program, which is not a candidate yet. nullptr if its name is already used.
const AlgorithmEntry* keep(std::shared_ptr<const Program> program);

// The loaded candidates. Valid until the process ends.
std::vector<const AlgorithmEntry*> loaded_entries();
const AlgorithmEntry* find_loaded(Collective collective, std::string_view name);
// The program of a loaded entry.
std::shared_ptr<const Program> program_of(const AlgorithmEntry& entry);

// Worlds of 2 to 9 ranks, and some up to 64, that the program supports; for a program only for more ranks, the smallest
// number. For a program that uses hosts, the divisions of worlds_to_prove(); it may support none of them.
std::vector<World> sample_worlds(const AlgorithmEntry& entry);
// Proves it with every root. The error has the number of ranks, the hosts and the root, or says that it takes too long
// (10 s).
Status prove_samples(const AlgorithmEntry& entry);

}  // namespace tutti::internal::algorithms
