// How long algorithms take over sizes: as a table for people, and which is the best from which size on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace tutti::internal::tools {

struct SizeTable {
  struct Row {
    std::uint64_t bytes = 0;
    std::vector<double> us;  // of each algorithm; infinity: it does not serve this size
  };
  std::vector<std::string> algorithms;
  std::vector<Row> rows;  // ascending
};

struct BestFrom {
  std::uint64_t bytes = 0;
  std::size_t algorithm = 0;
};
// Ascending; of the sizes that any algorithm serves the first is in it, and each where another one becomes the fastest.
std::vector<BestFrom> best_of(const SizeTable& table);

// A line for each size, a column for each algorithm, the fastest with a star; below it what best_of() says.
std::string to_text(const SizeTable& table);

}  // namespace tutti::internal::tools
