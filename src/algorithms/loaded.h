// Algorithms that were read from files (TUTTI_SCHEDULES): candidates as those of the catalog.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "algorithms/catalog.h"
#include "algorithms/program.h"

namespace tutti::internal::algorithms {

// Reads the files, whose names are separated by commas, and keeps what they have for the life of the process; one that
// is there already, from a file of the same text, is not read again. kInvalidUsage with file, line and field; also for
// a name that is taken, and for what is not proven: each file is proven for sample_worlds(), with every root, before
// it counts. Any thread.
Status load_schedules(const std::string& files);
// An entry for a program, which is not chosen yet. nullptr where its name is taken by another one.
const AlgorithmEntry* keep(std::shared_ptr<const Program> program);

// That may be chosen. For ever valid.
std::vector<const AlgorithmEntry*> loaded_entries();
const AlgorithmEntry* find_loaded(Collective collective, std::string_view name);
// The program of a loaded entry.
std::shared_ptr<const Program> program_of(const AlgorithmEntry& entry);

// From 2 to 9 ranks, and some up to 64, that the program serves; of one for more alone, the least. Of one that asks
// which ranks are on which host the divisions that worlds_to_prove() has, of which it may serve none.
std::vector<World> sample_worlds(const AlgorithmEntry& entry);
// With every root. The error says how many ranks, which hosts and which root, or that it takes too long (10 s).
Status prove_samples(const AlgorithmEntry& entry);

}  // namespace tutti::internal::algorithms
