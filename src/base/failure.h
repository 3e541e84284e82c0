// The failure state of one communicator on this rank. The first thread that detects a failure writes it (the control
// tree's thread, an operation, tuttiCommAbort); every wait reads it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/status.h"
#include "os/clock.h"
#include "os/mutex.h"

namespace tutti::internal {

// If nothing has moved in an operation for this time, its rank describes it to the other ranks.
inline constexpr std::int64_t kStallMs = 1000;

// A waiting rank checks at least this often whether the communicator has failed.
inline constexpr int kFailureCheckMs = 50;

class FailureState {
 public:
  // Any thread; one acquire load. True once the communicator has failed or was aborted.
  [[nodiscard]] bool failed() const { return failed_.load(std::memory_order_acquire); }
  // Any thread. The first call wins; later ones change nothing and return false.
  bool fail(Status status);
  // Any thread. Waits for a failure until the deadline; returns whether it has failed.
  bool await(Deadline deadline) const;
  // Any thread. Ok while not failed.
  [[nodiscard]] Status status() const;

  // Any thread. A call has returned the failure to the program.
  void set_told() { told_.store(true, std::memory_order_release); }
  [[nodiscard]] bool told() const { return told_.load(std::memory_order_acquire); }

  // A rank that has sent its leave notice (finalized), and the number of its operations. Waiting for a later operation
  // of it is pointless.
  struct Departure {
    int rank = -1;
    std::uint32_t operations = 0;  // modulo 2^32
  };
  // Allocates nothing for up to the expected number of ranks.
  void set_departed(Departure departure);
  void expect_departures(std::size_t ranks);
  [[nodiscard]] bool any_departed() const { return any_departed_.load(std::memory_order_acquire); }
  [[nodiscard]] bool departed(int rank) const;
  // A rank that has left before operation `number`; the rank is -1 if there is none.
  [[nodiscard]] Departure departed_before(std::uint32_t number) const;

 private:
  std::atomic<bool> failed_{false};
  std::atomic<bool> any_departed_{false};
  std::atomic<bool> told_{false};
  mutable Mutex mutex_;
  mutable ConditionVariable failed_now_;
  Status status_ TUTTI_GUARDED_BY(mutex_);
  std::vector<Departure> departed_ TUTTI_GUARDED_BY(mutex_);
};

}  // namespace tutti::internal
