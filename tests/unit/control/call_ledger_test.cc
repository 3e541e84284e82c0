// Reports of calls: which ones prove that ranks differ, and which ones do not.
#include "control/call_ledger.h"

#include <string>

#include "catch_compat.h"

using namespace tutti::internal;

namespace {

CallRecord record(std::uint32_t sequence, std::uint64_t call) {
  return {sequence, {call, 0}, 0, "call " + std::to_string(call) + " as " + std::to_string(sequence), ""};
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("equal calls are new once") {
  CallLedger ledger;
  bool is_new = false;
  REQUIRE(ledger.add(0, {record(1, 5), record(2, 6)}, &is_new).is_ok());
  CHECK(is_new);
  REQUIRE(ledger.add(3, {record(1, 5), record(2, 6)}, &is_new).is_ok());
  CHECK_FALSE(is_new);
  REQUIRE(ledger.add(3, {record(2, 6), record(3, 5)}, &is_new).is_ok());
  CHECK(is_new);
  REQUIRE(ledger.add(4, {}, &is_new).is_ok());
  CHECK_FALSE(is_new);
}

TEST_CASE("a different call under one number is a mismatch that names both ranks and calls") {
  CallLedger ledger;
  bool is_new = false;
  REQUIRE(ledger.add(7, {record(1, 5), record(2, 6)}, &is_new).is_ok());
  REQUIRE(ledger.add(8, {record(1, 5)}, &is_new).is_ok());
  const Status s = ledger.add(9, {record(1, 5), record(2, 5)}, &is_new);
  CHECK(s.code() == Code::kMismatch);
  CHECK(contains(s.message(), "rank 7 runs call 6 as 2"));
  CHECK(contains(s.message(), "rank 9 runs call 5 as 2"));
}

TEST_CASE("the same call under different numbers, or only one rank's, proves nothing") {
  CallLedger ledger;
  bool is_new = false;
  REQUIRE(ledger.add(0, {record(1, 5), record(2, 6)}, &is_new).is_ok());
  CHECK(ledger.add(1, {record(3, 5), record(4, 6)}, &is_new).is_ok());
  CHECK(ledger.add(2, {record(9, 7)}, &is_new).is_ok());
}

TEST_CASE("calls that differ only in the second word differ") {
  CallLedger ledger;
  bool is_new = false;
  CallRecord huge = record(1, 5);
  huge.call[1] = std::uint64_t{1} << 32;
  REQUIRE(ledger.add(0, {record(1, 5)}, &is_new).is_ok());
  CHECK(ledger.add(1, {huge}, &is_new).code() == Code::kMismatch);
}

TEST_CASE("one call that is run in two ways is a mismatch once both ways are known") {
  const auto run = [](std::string how) {
    CallRecord r = record(1, 5);
    r.plan = std::move(how);
    return r;
  };
  CallLedger ledger;
  bool is_new = false;
  REQUIRE(ledger.add(0, {run("")}, &is_new).is_ok());
  REQUIRE(ledger.add(1, {run("by ring")}, &is_new).is_ok());
  CHECK(is_new);
  REQUIRE(ledger.add(2, {run("by ring")}, &is_new).is_ok());
  CHECK_FALSE(is_new);
  REQUIRE(ledger.add(3, {run("")}, &is_new).is_ok());
  CHECK_FALSE(is_new);
  const Status s = ledger.add(4, {run("by tree")}, &is_new);
  CHECK(s.code() == Code::kMismatch);
  CHECK(contains(s.message(), "rank 1 runs call 5 as 1 by ring, rank 4 runs it by tree"));
}

TEST_CASE("calls with repeated numbers are not mistaken for old ones") {
  CallLedger ledger;
  bool is_new = false;
  REQUIRE(ledger.add(0, {record(4, 5), record(5, 6)}, &is_new).is_ok());
  REQUIRE(ledger.add(0, {record(1U << 30, 5)}, &is_new).is_ok());
  REQUIRE(ledger.add(0, {record(3U << 30, 5)}, &is_new).is_ok());
  CHECK(ledger.add(1, {record(4, 6), record(5, 7)}, &is_new).is_ok());
  // Numbers that wrap around still follow each other.
  REQUIRE(ledger.add(1, {record(UINT32_MAX, 7), record(0, 8)}, &is_new).is_ok());
  CHECK(ledger.add(2, {record(0, 9)}, &is_new).code() == Code::kMismatch);
  CHECK(ledger.add(2, {record(UINT32_MAX, 9)}, &is_new).code() == Code::kMismatch);
}

TEST_CASE("the ledger forgets the oldest calls only") {
  constexpr std::uint32_t kKept = 128;
  CallLedger ledger;
  bool is_new = false;
  for (std::uint32_t i = 1; i <= kKept + 1; ++i) REQUIRE(ledger.add(0, {record(i, 5)}, &is_new).is_ok());
  CHECK(ledger.add(1, {record(2, 6)}, &is_new).code() == Code::kMismatch);
  CHECK(ledger.add(1, {record(kKept + 1, 6)}, &is_new).code() == Code::kMismatch);
  CHECK(ledger.add(1, {record(1, 6)}, &is_new).is_ok());
}
