// Communicators of processes that are split onto a device whose driver fails, in the stand-in: all ranks receive the
// reason.
#include <string>

#include "catch_compat.h"
#include "device_rig.h"
#include "job.h"

using namespace tutti::internal::test;

namespace {

// Makes the `n`th call of the driver by rank 1, from now on, fail. Empty: everything is correct; *passed: there was no
// such call.
std::string split_with_failure(tuttiComm_t comm, int rank, int n, bool* passed) {
  tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
  config.device = "cuda:0";
  tuttiComm_t made = nullptr;
  if (rank == 1) (void)TestDriver::get().fail(n);
  const tuttiResult_t result = tuttiCommSplit(comm, 0, rank, &made, &config);
  const std::string why = result == tuttiSuccess ? "" : tuttiGetLastError(comm);
  std::int32_t left = rank == 1 && TestDriver::get().fail(-1) >= 0 ? 1 : 0;
  if (tuttiBroadcast(&left, &left, 1, tuttiInt32, 1, comm, nullptr) != tuttiSuccess) return "the parent has failed";
  *passed = left != 0;
  if (result == tuttiSuccess) return tuttiCommDestroy(made) == tuttiSuccess ? "" : "cannot be destroyed";
  if (*passed) return "a split without a failure has failed: " + why;
  return why.find("an error of the stand-in's") != std::string::npos ? "" : "call " + std::to_string(n) + ": " + why;
}

}  // namespace

TEST_CASE("processes: whichever call of the driver fails in one rank's split, all ranks' errors name that rank") {
  const auto outcomes = run_processes(3, "shm", [](tuttiComm_t comm, int rank, int) {
    bool passed = false;
    for (int n = 0; n < 200 && !passed; ++n) {
      const std::string wrong = split_with_failure(comm, rank, n, &passed);
      if (!wrong.empty()) return Outcome{wrong};
    }
    return Outcome{passed ? "" : "there is no end of it"};
  });
  CHECK(wrong_of(outcomes) == "");
}
