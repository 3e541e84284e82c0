// Which of a group's collectives run together, and their fingerprint and data then.
#include "communicator/coalesced.h"

#include <array>
#include <cstring>

#include "unit/epoch/plans_fixture.h"

using namespace tutti::internal;
using namespace tutti::internal::test;

namespace {

constexpr int kRanks = 3;

Call call_of(Collective collective, std::size_t count, DataType type = DataType::kFloat32) {
  Call call;
  call.collective = collective;
  call.count = count;
  call.type = type;
  return call;
}

std::size_t together(const Fixture& f, const std::vector<Call>& calls) {
  return Coalesced(calls, *f.plans, 0, kRanks).calls().size();
}

}  // namespace

TEST_CASE("calls run together once their plan has been made") {
  const Fixture f(kRanks);
  const std::vector<Call> calls(5, call_of(Collective::kAllReduce, 2));
  CHECK(together(f, calls) == 1);
  const executor::Plan* const plan = f.make(Collective::kAllReduce, 0, 8);
  const Coalesced all(calls, *f.plans, 0, kRanks);
  CHECK(all.calls().size() == 5);
  CHECK(&all.plan() == plan);
  CHECK(all.bytes() == 40);
  CHECK(all.hash_of_counts() != Coalesced(std::span(calls).first(4), *f.plans, 0, kRanks).hash_of_counts());
  std::vector<Call> others = calls;
  others[2].count = 1;
  others[3].count = 3;
  CHECK(all.hash_of_counts() != Coalesced(others, *f.plans, 0, kRanks).hash_of_counts());
  CHECK(together(f, {calls[0]}) == 1);
}

TEST_CASE("calls run together up to the first that is of another kind, too long or empty") {
  const Fixture f(kRanks, "ring,all_reduce:k_nomial:2,reduce:k_nomial:2");
  for (unsigned bits = 0; bits < 16; ++bits) {
    for (int root = 0; root < 2; ++root) f.make(Collective::kReduce, root, std::size_t{1} << bits);
    f.make(Collective::kAllReduce, 0, std::size_t{1} << bits);
  }
  const Call call = call_of(Collective::kReduce, 3);
  CHECK(together(f, {call, call_of(Collective::kReduce, 256), call}) == 3);
  CHECK(together(f, {call, call, call_of(Collective::kReduce, 257), call}) == 2);
  CHECK(together(f, {call, call, call, call_of(Collective::kReduce, 0), call}) == 3);
  CHECK(together(f, {call, call, call_of(Collective::kAllReduce, 3)}) == 2);
  CHECK(together(f, {call, call, call_of(Collective::kReduce, 3, DataType::kInt32)}) == 2);
  Call other = call;
  other.op = ReduceOp::kMax;
  CHECK(together(f, {call, call, other}) == 2);
  other = call;
  other.root = 1;
  CHECK(together(f, {call, call, other}) == 2);
  other = call;
  const CustomOperator custom;
  other.custom = &custom;
  CHECK(together(f, {call, call, other}) == 2);
  CHECK(together(f, std::vector<Call>(50, call_of(Collective::kReduce, 256))) == Coalesced::kMostBytes / 1024);
}

TEST_CASE("a call that combines an element depending on its position in the block runs alone") {
  const Fixture f(kRanks, "all_reduce:ring");
  f.make(Collective::kAllReduce, 0, 8);
  f.make(Collective::kAllGather, 0, 8 * kRanks);
  CHECK(together(f, std::vector<Call>(5, call_of(Collective::kAllReduce, 2))) == 1);
  CHECK(together(f, std::vector<Call>(5, call_of(Collective::kAllGather, 2))) == 5);
}

TEST_CASE("in every block of the one call are those of the calls, one behind the other") {
  const Fixture f(kRanks);
  f.make(Collective::kAllToAll, 0, 1 * kRanks);
  f.make(Collective::kAllToAll, 0, 2 * kRanks);
  std::array<char, 3> first{'a', 'b', 'c'};
  std::array<char, 6> second{'A', 'B', 'C', 'D', 'E', 'F'};
  std::array<char, 3> first_out{};
  std::array<char, 6> second_out{};
  std::vector<Call> calls = {call_of(Collective::kAllToAll, 1, DataType::kUint8),
                             call_of(Collective::kAllToAll, 2, DataType::kUint8)};
  calls[0].send = first.data();
  calls[0].recv = first_out.data();
  calls[1].send = second.data();
  calls[1].recv = second_out.data();
  const Coalesced both(calls, *f.plans, 1, kRanks);
  REQUIRE(both.calls().size() == 2);
  REQUIRE(both.packed_bytes() == 18);
  std::array<std::byte, 18> memory{};
  both.pack(memory.data());
  CHECK(std::memcmp(memory.data(), "aABbCDcEF", 9) == 0);
  const Call one = both.one(memory.data());
  CHECK(one.count == 3);
  CHECK(one.send == memory.data());
  REQUIRE(one.recv == memory.data() + 9);
  std::memcpy(one.recv, "xXYyZ!z?.", 9);
  both.unpack(memory.data());
  CHECK(std::memcmp(first_out.data(), "xyz", 3) == 0);
  CHECK(std::memcmp(second_out.data(), "XYZ!?.", 6) == 0);
}

TEST_CASE("a root that scatters or broadcasts in place writes nothing there") {
  std::array<float, 6> values{};
  for (const auto& [collective, recv] :
       {std::pair{Collective::kScatter, values.data() + 2}, std::pair{Collective::kBroadcast, values.data()}}) {
    Call rooted = call_of(collective, 2);
    rooted.root = 1;
    rooted.send = values.data();
    rooted.recv = recv;
    Call reader = call_of(Collective::kAllGather, 2);
    std::array<float, 6> all{};
    reader.send = recv;
    reader.recv = all.data();
    const std::array<Call, 2> both{rooted, reader};
    CHECK(check_apart(both, 1, kRanks).is_ok());
    CHECK_FALSE(check_apart(both, 2, kRanks).is_ok());
  }
}
