// A rank without memory: its errors, and how it ends.
#include <cstdlib>
#include <memory>
#include <new>
#include <optional>
#include <vector>

#include "catch_compat.h"
#include "epoch/call_history.h"
#include "join/in_process.h"
#include "transport/connections/listeners.h"

namespace {

thread_local bool refuses_memory = false;

}  // namespace

// If they were inlined, GCC would see a new and a delete that do not match.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  void* const found = refuses_memory ? nullptr : std::malloc(bytes != 0 ? bytes : 1);
  if (found == nullptr) throw std::bad_alloc();
  return found;
}
[[gnu::noinline]] void* operator new(std::size_t bytes, const std::nothrow_t& /*unused*/) noexcept {
  return refuses_memory ? nullptr : std::malloc(bytes != 0 ? bytes : 1);
}
[[gnu::noinline]] void operator delete(void* p) noexcept {
  std::free(p);
}
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept {
  std::free(p);
}

using namespace tutti::internal;

TEST_CASE("a visit that never came to look ends without memory") {
  Secret secret;
  secret.fill(7);
  Listeners listeners(secret, 1, Encryption::kOff);
  // Mailboxes for shared connections are allocated at the first visit.
  std::optional<Listeners::Visit> visit(std::in_place, listeners, std::vector<std::uint64_t>{Listeners::shared_by(0)});
  refuses_memory = true;
  visit.reset();
  refuses_memory = false;
  CHECK(listeners.take(Listeners::shared_by(0)).empty());
}

TEST_CASE("calls are counted without memory") {
  CallHistory history;
  for (std::size_t count = 1; count < 40; ++count) {
    history.begin(Collective::kAllReduce, DataType::kFloat32, ReduceOp::kSum, 0, count);
  }
  const CallSummary full = history.summary();
  refuses_memory = true;
  const CallSummary numbers = history.summary();
  refuses_memory = false;
  CHECK(full.operations == 39);
  CHECK(full.calls.size() == CallHistory::kKept);
  CHECK(numbers.operations == full.operations);
  CHECK(numbers.hash == full.hash);
  CHECK(numbers.calls.empty());
}

TEST_CASE("a thread rank leaves without memory, and its peers see a normal departure") {
  constexpr int kRanks = 3;
  Result<std::vector<Job>> jobs = make_in_process_jobs(kRanks);
  REQUIRE(jobs.is_ok());
  std::vector<CallHistory> histories(kRanks);
  std::vector<std::shared_ptr<FailureState>> failures;
  // Rank 2 has not called the last operation yet.
  for (std::size_t r = 0; r < kRanks; ++r) {
    for (int i = r == 2 ? 1 : 0; i < 20; ++i) {
      histories[r].begin(Collective::kReduceScatterV, DataType::kFloat32, ReduceOp::kSum, 0, 1000);
    }
    failures.push_back(std::make_shared<FailureState>());
    Witness witness;
    witness.calls = [&histories, r] { return histories[r].summary(); };
    REQUIRE((*jobs)[r].tree->watch(failures[r], std::move(witness)).is_ok());
  }
  refuses_memory = true;
  (*jobs)[0].tree->leave();
  (*jobs)[1].tree->leave();
  refuses_memory = false;
  for (const auto& failure : failures) CHECK(failure->status().message() == "");
  CHECK((failures[2]->departed(0) && failures[2]->departed(1)));
  CHECK(failures[2]->departed_before(21).operations == 20);
}
