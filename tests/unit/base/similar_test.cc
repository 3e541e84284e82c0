// The suggestion for an unknown name.
#include "base/similar.h"

#include <array>
#include <string_view>

#include "catch_compat.h"

namespace tutti::internal {
namespace {

TEST_CASE("the suggestion for a word is found by its letters") {
  const auto names = std::to_array<std::string_view>({"run", "topo", "simulate", "schedule", "all_reduce", "--json"});
  CHECK(most_similar("rnu", names) == "run");
  CHECK(most_similar("tpoo", names) == "topo");
  CHECK(most_similar("sim", names) == "simulate");
  CHECK(most_similar("Reduce", names) == "all_reduce");
  CHECK(most_similar("All-Reduce", names) == "all_reduce");
  CHECK(most_similar("--jsn", names) == "--json");
  CHECK(most_similar("shedul", names) == "schedule");
  for (const char* other : {"", "x", "abc", "rest", "---", "reduce_scatter", "nonsense"}) {
    INFO(other);
    CHECK(most_similar(other, names).empty());
  }
  CHECK(most_similar("run", {}).empty());
  CHECK(meant_text("rnu", names) == "; is run meant?");
  CHECK(meant_text("nonsense", names).empty());
}

}  // namespace
}  // namespace tutti::internal
