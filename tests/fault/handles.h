// Shared parts of the tests of handles.
#pragma once

#include <array>
#include <cstdint>

#include "faults.h"
#include "sanitizers.h"

namespace tutti::internal::test {

inline constexpr int kRounds = kThreadSanitizer ? 40 : 150;

inline std::array<tuttiComm_t, 2> make_pair_of_ranks() {
  std::array<tuttiComm_t, 2> comms{};
  REQUIRE(tuttiCommInitAll(comms.data(), 2, nullptr) == tuttiSuccess);
  return comms;
}

inline tuttiResult_t all_reduce(tuttiComm_t comm, tuttiStream_t stream = nullptr) {
  // A queued operation may end after its thread. One at a time: a single rank's own value is not written.
  static std::int32_t queued = 0;
  std::int32_t own = 0;
  std::int32_t* const value = stream == nullptr ? &own : &queued;
  return tuttiAllReduce(value, value, 1, tuttiInt32, tuttiSum, comm, stream);
}

// Every call with a communicator is refused.
inline void require_stale(tuttiComm_t comm) {
  int number = 0;
  char text[64];
  tuttiResult_t error = tuttiSuccess;
  CHECK(all_reduce(comm) == tuttiInvalidArgument);
  CHECK(tuttiBarrier(comm, nullptr) == tuttiInvalidArgument);
  CHECK(tuttiCommCount(comm, &number) == tuttiInvalidArgument);
  CHECK(tuttiCommUserRank(comm, &number) == tuttiInvalidArgument);
  CHECK(tuttiCommCuDevice(comm, &number) == tuttiInvalidArgument);
  CHECK(tuttiCommGetAsyncError(comm, &error) == tuttiInvalidArgument);
  CHECK(tuttiCommExplain(comm, tuttiCollectiveAllReduce, 8, text, sizeof text) == tuttiInvalidArgument);
  CHECK(tuttiCommFinalize(comm) == tuttiInvalidArgument);
  CHECK(tuttiCommRevoke(comm, TUTTI_REVOKE_DEFAULT) == tuttiInvalidArgument);
  tuttiUniqueId id;
  tuttiComm_t part = nullptr;
  CHECK(tuttiCommGetUniqueId(comm, &id) == tuttiInvalidArgument);
  CHECK(tuttiCommSplit(comm, 0, 0, &part, nullptr) == tuttiInvalidArgument);
  CHECK(tuttiCommAbort(comm) == tuttiInvalidArgument);
  CHECK(tuttiCommDestroy(comm) == tuttiInvalidArgument);
  CHECK(contains(tuttiGetLastError(comm), "communicator"));
}

}  // namespace tutti::internal::test
