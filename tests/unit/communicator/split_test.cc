#include "communicator/split.h"

#include <set>

#include "catch_compat.h"
#include "epoch/family.h"

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

TEST_CASE("split: impossible requests are detected, word by word") {
  Family family(5);
  SplitRequest good;
  good.color = 0;
  good.id = family.next_id();
  CHECK(is_possible(good, 5));
  good.text_bytes = kMostSettingsBytes;
  CHECK(is_possible(good, 5));
  SplitRequest refuses = good;
  refuses.refused = static_cast<std::int32_t>(Code::kInvalidArgument);
  refuses.text_bytes = kMostReasonBytes;
  CHECK(is_possible(refuses, 5));
  const auto broken = [&](auto change) {
    SplitRequest bad = good;
    change(bad);
    return !is_possible(bad, 5);
  };
  CHECK(broken([](auto& r) { r.color = -2; }));
  CHECK(broken([](auto& r) { r.id = 0; }));
  CHECK(broken([](auto& r) { r.id |= std::uint64_t{1} << 63; }));
  CHECK(broken([](auto& r) { r.id = Family(4).next_id(); }));
  CHECK(broken([](auto& r) { r.id = Listeners::shared_by(5); }));
  CHECK(broken([](auto& r) { r.refused = 9; }));
  CHECK(broken([](auto& r) { r.refused = -1; }));
  CHECK(broken([](auto& r) { r.text_bytes = kMostSettingsBytes + 1; }));
  CHECK(broken([](auto& r) { r.text_bytes = 0xffffffff; }));
  // A rank that refuses gives a reason.
  CHECK(broken([](auto& r) { r.refused = static_cast<std::int32_t>(Code::kSystemError), r.text_bytes = 0; }));
  CHECK(broken([](auto& r) { r.refused = static_cast<std::int32_t>(Code::kSystemError), r.text_bytes = 1025; }));
  CHECK(is_possible(SplitOutcome{0}));
  CHECK(is_possible(SplitOutcome{1024}));
  CHECK(is_possible(SplitOutcome{7 | SplitOutcome::kOfAnother}));
  CHECK_FALSE(is_possible(SplitOutcome{1025}));
  CHECK_FALSE(is_possible(SplitOutcome{SplitOutcome::kOfAnother}));
  CHECK_FALSE(is_possible(SplitOutcome{0xffffffff}));
}

}  // namespace tutti::internal
