#include "memory/process_reads.h"

#include <array>
#include <thread>

#include "catch_compat.h"

using namespace tutti::internal;

TEST_CASE("all threads get the same result of the test for reads") {
  std::array<bool, 4> found{};
  std::array<std::thread, 4> threads;
  for (std::size_t i = 0; i < threads.size(); ++i)
    threads[i] = std::thread([&found, i] { found[i] = memory::reads_of_processes_pay(); });
  for (std::thread& t : threads) t.join();
  for (const bool one : found) CHECK(one == found[0]);
  CHECK(memory::reads_of_processes_pay() == found[0]);
}
