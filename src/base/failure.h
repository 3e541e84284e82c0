// The failure state of one communicator on this rank: written by whoever learns of a failure first
// (the control tree's thread, an operation, tuttiCommAbort), seen by every wait.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/status.h"
#include "os/clock.h"
#include "os/mutex.h"

namespace tutti::internal {

// An operation in which nothing has moved for this long tells the other ranks what it is.
inline constexpr std::int64_t kStallMs = 1000;

// A rank that waits looks at least so often whether the communicator has failed.
inline constexpr int kFailureCheckMs = 50;

class FailureState {
 public:
  // Any thread; one acquire load. True once the communicator has failed or was aborted.
  [[nodiscard]] bool failed() const { return failed_.load(std::memory_order_acquire); }
  // Any thread. The first call wins; later ones change nothing and return false.
  bool fail(Status status);
  // Any thread. Until it has failed, or the deadline; whether it has.
  bool await(Deadline deadline) const;
  // Any thread. Ok while not failed.
  [[nodiscard]] Status status() const;

  // Any thread. Whether a call has returned the failure to the program: until then nobody knows of it.
  void set_told() { told_.store(true, std::memory_order_release); }
  [[nodiscard]] bool told() const { return told_.load(std::memory_order_acquire); }

  // A rank that has sent its leave notice (finalized), and after how many operations. Waiting for one of them is
  // pointless.
  struct Departure {
    int rank = -1;
    std::uint32_t operations = 0;  // modulo 2^32
  };
  // Needs no memory for as many ranks as were expected.
  void set_departed(Departure departure);
  void expect_departures(std::size_t ranks);
  [[nodiscard]] bool any_departed() const { return any_departed_.load(std::memory_order_acquire); }
  [[nodiscard]] bool departed(int rank) const;
  // One that has left before operation `number`; its rank is -1 if there is none.
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
