// Ranks of a communicator that are in one process, of which some share a CUDA device: what they call is put into their
// streams together, by the rank that calls last.
//
// The streams of a device share a few hardware queues (CUDA_DEVICE_MAX_CONNECTIONS of them, 8 by default), and what
// waits in such a queue keeps back all that was put there later, also of other streams. If each rank filled its stream
// alone, one might wait for what another has behind it in the same queue, and neither would go on. Put there together,
// whatever waits comes behind what it waits for. And when all of a communicator's ranks are there and their device is
// one, a kernel can do the work on their buffers.
//
// A call returns when its batch is in the streams, so a rank waits here for the others, but not for long, and not for
// one that its own thread serves: then all of them put this batch into their streams alone.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "base/failure.h"
#include "base/status.h"
#include "calls/batch.h"
#include "device/meetings.h"
#include "join/unique_id.h"
#include "memory/cuda_device.h"
#include "os/mutex.h"

namespace tutti::internal {

class DeviceBackend;
class DevicePlan;

// What one rank has called, on its way into its streams. Ownership: the rank's thread, which waits while another
// touches it.
struct DeviceSubmission {
  ~DeviceSubmission();
  DeviceSubmission(const DeviceSubmission&) = delete;
  DeviceSubmission& operator=(const DeviceSubmission&) = delete;
  DeviceSubmission(DeviceBackend& of, std::shared_ptr<const Batch> what, std::span<void* const> where)
      : backend(of), batch(std::move(what)), streams(where.begin(), where.end()) {}
  enum class State : std::uint8_t {
    kUnderWay,
    kApart,  // to be put into the streams alone
    kDone,   // it is there, or `status` says why not
  };
  DeviceBackend& backend;
  const std::shared_ptr<const Batch> batch;
  const std::vector<void*> streams;
  bool direct = false;                     // a kernel may do it, as far as this rank knows
  bool own_thread = false;                 // only this rank's thread can put it into its streams
  std::shared_ptr<const DevicePlan> plan;  // where none does
  Status status;
  std::atomic<State> state{State::kUnderWay};
  std::shared_ptr<class DeviceConvoy> convoy;  // that it has come to
};

// Threads: any. One thread at a time for each rank.
class DeviceConvoy : public std::enable_shared_from_this<DeviceConvoy> {
 public:
  // That of the communicator with this secret in this process, in which it has so many ranks. All of them take part
  // until they leave().
  static std::shared_ptr<DeviceConvoy> join(const Secret& secret, int ranks, int of_all, int rank,
                                            const memory::CudaDevice& device);
  DeviceConvoy(int ranks, int of_all) : ranks_(ranks), of_all_(of_all) {}
  DeviceConvoy(const DeviceConvoy&) = delete;
  DeviceConvoy& operator=(const DeviceConvoy&) = delete;
  // Nobody waits for the rank any more, and what graphs have of the communicator ends.
  void leave() TUTTI_EXCLUDES(mutex_);

  // The rank has come to its next batch with calls of collectives. The last one that comes puts all of them into their
  // streams.
  void come(int rank, DeviceSubmission* submission) TUTTI_EXCLUDES(mutex_);
  // Until the submission's state is settled. Not past the failure of its communicator.
  void wait(DeviceSubmission* submission, const FailureState& failure) TUTTI_EXCLUDES(mutex_);
  // Nobody waits for it any more.
  void give_up(const DeviceSubmission& submission) TUTTI_EXCLUDES(mutex_);

  // Whether all of the communicator's ranks are here and have one device. Waits until all are there, or the
  // communicator has failed.
  bool is_one_device(const FailureState& failure) TUTTI_EXCLUDES(mutex_);
  // How its ranks meet on the device, the same for all. Null: they cannot, as the device has no room left for thread
  // blocks that wait for each other. REQUIRES: is_one_device().
  Result<std::shared_ptr<DirectMeetings>> meetings(const DirectKernels& kernels) TUTTI_EXCLUDES(mutex_);
  // What waits for others on the device goes on. Takes no lock that is held while the driver is called.
  void stop() noexcept;
  // Of a rank whose launch in a graph has failed.
  [[nodiscard]] DirectReport report(int rank) const;

 private:
  struct Member {
    int rank = 0;
    const memory::CudaDevice* device = nullptr;
    std::uint64_t batches = 0;  // that it has come to
    std::thread::id thread;     // that it came by last
    DeviceSubmission* here = nullptr;
  };
  bool travels_together() const TUTTI_REQUIRES(mutex_);
  bool has_one_device() const TUTTI_REQUIRES(mutex_);
  // For so long those that are not here are waited for.
  std::int64_t patience_ms() const TUTTI_REQUIRES(mutex_);
  // Of those that are here.
  void settle(DeviceSubmission::State state) TUTTI_REQUIRES(mutex_);
  // Until no thread puts a batch into its streams.
  void await_driver() TUTTI_REQUIRES(mutex_);

  const int ranks_;   // in this process
  const int of_all_;  // of the communicator
  Mutex mutex_;
  ConditionVariable changed_;
  std::vector<Member> members_ TUTTI_GUARDED_BY(mutex_);
  bool shares_device_ TUTTI_GUARDED_BY(mutex_) = false;  // one member with another
  bool left_ TUTTI_GUARDED_BY(mutex_) = false;           // a member has
  std::uint64_t settled_ TUTTI_GUARDED_BY(mutex_) = 0;   // batches of which it is settled how they go
  bool submitting_ TUTTI_GUARDED_BY(mutex_) = false;     // a thread puts all that are here into their streams
  bool met_ TUTTI_GUARDED_BY(mutex_) = false;            // meetings() has been decided
  bool meeting_ TUTTI_GUARDED_BY(mutex_) = false;        // a thread asks the driver for that
  std::shared_ptr<DirectMeetings> meetings_ TUTTI_GUARDED_BY(mutex_);
  std::atomic<DirectControl*> control_{nullptr};  // of meetings_
  std::atomic<bool> stopped_{false};
};

}  // namespace tutti::internal
