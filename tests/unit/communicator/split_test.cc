#include "communicator/split.h"

#include <set>

#include "catch_compat.h"

namespace tutti::internal {
namespace {

SplitRequest request(std::int32_t color, std::int32_t key) {
  SplitRequest made;
  made.color = color;
  made.key = key;
  return made;
}

}  // namespace

TEST_CASE("the members of a group are ordered by key, and of equal keys by rank") {
  const std::vector<SplitRequest> requests = {request(1, 5),  request(0, 0),         request(1, -2147483647 - 1),
                                              request(1, 5),  request(kNoColor, 0),  request(0, 2147483647),
                                              request(1, -3), request(kNoColor, -1), request(7, 0)};
  CHECK(members_of(requests, 1) == std::vector<int>{2, 6, 0, 3});
  CHECK(members_of(requests, 0) == std::vector<int>{1, 5});
  CHECK(members_of(requests, 7) == std::vector<int>{8});
  CHECK(members_of(requests, 3).empty());
}

TEST_CASE("no two ranks of a job draw one number, and none that of the first communicator") {
  std::set<std::uint64_t> drawn = {0};
  std::size_t count = 1;
  for (const int rank : {0, 1, 2, 4095, 4096, (1 << 20) - 1}) {
    Family family(rank);
    for (int i = 0; i < 1000; ++i) {
      drawn.insert(family.next_id());
      ++count;
    }
  }
  CHECK(drawn.size() == count);
}

}  // namespace tutti::internal
