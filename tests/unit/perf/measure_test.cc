// The uncertainty of a median.
#include "perf/harness/measure.h"

#include "catch_compat.h"

namespace tutti::internal::perf {

TEST_CASE("the spread of a median") {
  CHECK(spread_of({7}) == 0);
  CHECK(spread_of(std::vector<double>(100, 7)) == 0);
  // The spread of a few values is that of all of them: half of the distance between the smallest and the largest.
  CHECK(spread_of({3, 1, 2}) == Approx(0.5));
  // 95 % of the medians of 100 values lie between the 40th and the 61st of them.
  std::vector<double> values;
  for (int i = 0; i < 100; ++i) values.push_back(1001 + i * 37 % 100);
  CHECK(spread_of(values) == Approx(21 / 2.0 / 1050.5));
  // More of the same values make it certain.
  std::vector<double> many;
  for (int i = 0; i < 100; ++i) many.insert(many.end(), values.begin(), values.end());
  CHECK(spread_of(many) < spread_of(values) / 5);
  // One value far away says nothing about the median.
  values.back() = 1e9;
  CHECK(spread_of(values) < 0.02);
}

}  // namespace tutti::internal::perf
