// The rendezvous of a communicator's ranks on CUDA devices. Each process has one for its ranks. Ranks rendezvous in
// three ways, which share the list of members, the memory that kernels of all ranks access, and the way to end:
//
//                    batched launch               graphs                        windows
//   members          ranks of one process         all ranks, on one device of   all ranks, in several processes
//                                                 one process                   of one machine
//   a rank brings    a batch and its streams      the addresses of its buffers  its input, in its window
//                                                 and its call, in mailboxes
//   all are there    when the last rank calls     when a counter on the device  when a barrier of the host ends
//                                                 says so
//   a rank gets      its streams filled, or its   the addresses of all buffers  its output, in its window
//                    output from one kernel
//   a rank leaves    the others launch alone      the kernels of all ranks end  the barrier fails
//   a rank fails     the others launch alone      the kernels of all ranks end  the barrier fails, and the rank's own
//                                                                               kernels access no window
//   a rank is late   after 0.2 s each launches    after the communicator's      after the communicator's timeout the
//                    alone                        timeout the kernels end       barrier fails
//
// The three ways must wait in different places. A batched launch waits in a call of the program, so it ends soon. Ranks
// replay graphs without a call, so their kernels wait on the device (direct.h). Processes that share a device get it in
// time slices of 0.45 ms on an H200, so there nothing waits on the device: the host does.
//
// Why launches are batched: the streams of a device share a few hardware queues (CUDA_DEVICE_MAX_CONNECTIONS of them, 8
// by default), and a wait in such a queue delays everything that was put there later, also from other streams. If each
// rank filled its stream alone, one could wait for work that another rank has later in the same queue. The last rank
// that calls fills all streams, so that each wait follows the work for which it waits. If all ranks are there and have
// one device, one kernel can do the work on the buffers of all.
//
// Ownership: the ranks' backends together, and each graph that has captured calls of them. Its device memory belongs to
// the process and serves other communicators afterwards, because freeing it would make the driver wait for all streams.
// Threads: any; for each rank one at a time. The lock is never held during a call of the driver.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/failure.h"
#include "base/rank_table.h"
#include "base/status.h"
#include "calls/batch.h"
#include "device/direct.h"
#include "device/kernels.h"
#include "join/peer_info.h"
#include "join/unique_id.h"
#include "memory/cuda_device.h"
#include "os/mutex.h"

namespace tutti::internal {

class DeviceBackend;
class DevicePlan;
class DeviceRendezvous;

// The call of one rank, on its way into its streams. Ownership: the rank's thread, which waits while another accesses
// it.
struct DeviceSubmission {
  ~DeviceSubmission();
  DeviceSubmission(const DeviceSubmission&) = delete;
  DeviceSubmission& operator=(const DeviceSubmission&) = delete;
  DeviceSubmission(DeviceBackend* of, std::shared_ptr<const Batch> what, std::span<void* const> where)
      : backend(of), batch(std::move(what)), streams(where.begin(), where.end()) {}
  enum class State : std::uint8_t {
    kUnderWay,
    kAlone,  // its rank must put it into the streams
    kDone,   // it is in the streams, or `status` has the error
  };
  DeviceBackend* const backend;
  const std::shared_ptr<const Batch> batch;
  const std::vector<void*> streams;
  bool direct = false;                     // a kernel may run it, as far as this rank knows
  bool own_thread = false;                 // only this rank's thread can put it into its streams
  std::shared_ptr<const DevicePlan> plan;  // if no kernel runs it
  Status status;
  std::atomic<State> state{State::kUnderWay};
  std::shared_ptr<DeviceRendezvous> rendezvous;  // to which it was brought
};

// Device memory that kernels of several ranks access, and the words by which the host ends them.
struct SharedMemory {
  std::byte* memory = nullptr;
  std::size_t bytes = 0;
  DirectControl* control = nullptr;  // page-locked host memory, never unlocked
};

// The windows of all ranks, as this process accesses them.
struct DeviceWindows {
  std::size_t half_bytes = 0;                         // bytes for inputs in a window; as many for outputs follow
  std::size_t least_bytes = 0;                        // shorter vectors are staged; the same on all ranks
  std::array<std::byte*, kMostDirectRanks> memory{};  // by rank
  const DirectKernels* kernels = nullptr;             // of the device
};

class DeviceRendezvous : public std::enable_shared_from_this<DeviceRendezvous> {
 public:
  // ---- Membership, and the end
  // The rendezvous, in this process, of the communicator with this secret. The rank is a member until it leaves.
  static std::shared_ptr<DeviceRendezvous> join(const Secret& secret, const RankTable<PeerInfo>& peers, int rank,
                                                const memory::CudaDevice& device);
  DeviceRendezvous(int here, int ranks) : here_(here), ranks_(ranks) {}
  ~DeviceRendezvous();
  DeviceRendezvous(const DeviceRendezvous&) = delete;
  DeviceRendezvous& operator=(const DeviceRendezvous&) = delete;
  void leave(int rank) TUTTI_EXCLUDES(mutex_);
  // The rank has failed, or one of its batches does not run: from now on its kernels access no window, and no kernel of
  // a graph waits. Takes no lock and calls no driver.
  void stop(int rank) noexcept;
  // No rank accesses this rank's window any more: other communicators may use it. Not after a failure.
  void set_quiet(int rank) TUTTI_EXCLUDES(mutex_);
  // Whether all ranks are in this process and have one device. Waits until they have joined, or the communicator has
  // failed.
  bool is_one_device(const FailureState& failure) TUTTI_EXCLUDES(mutex_);

  // ---- Batched launch
  // Whether a batch should be brought: if not, each rank launches alone.
  [[nodiscard]] bool batches() const { return here_ > 1 || ranks_ == 1; }
  // The work of the rank that calls last: puts the batches of all, in the order of ranks, into their streams, and then
  // calls finish(). No other thread accesses them meanwhile.
  struct Launch {
    std::vector<DeviceSubmission*> all;  // empty: not all ranks are there
    bool one_device = false;
  };
  // The rank brings its next batch with calls of collectives.
  Launch bring(int rank, DeviceSubmission* submission) TUTTI_EXCLUDES(mutex_);
  void finish() TUTTI_EXCLUDES(mutex_);
  // Waits until the submission's state is settled: for longest_wait_ms(), and not past the failure of its communicator.
  void wait(DeviceSubmission* submission, const FailureState& failure) TUTTI_EXCLUDES(mutex_);
  // The wait for ranks that have not brought their batches; 0 if this thread serves one of them.
  std::int64_t longest_wait_ms() TUTTI_EXCLUDES(mutex_);
  // The submission is no longer awaited.
  void give_up(const DeviceSubmission& submission) TUTTI_EXCLUDES(mutex_);

  // ---- Graphs. REQUIRES: is_one_device()
  // Takes the mailboxes. False, on all ranks: the device has no room left for thread blocks that wait for each other.
  Result<bool> open_mailboxes(const DirectKernels& kernels) TUTTI_EXCLUDES(mutex_);
  // Makes the call one of rank `rank`, in a rendezvous with the others.
  void add_mailboxes(DirectCall* call, int rank) const;
  // Thread blocks of each rank.
  [[nodiscard]] unsigned columns() const { return columns_; }
  // The report of a rank whose launch in a graph has failed.
  [[nodiscard]] DirectReport report(int rank) const;

  // ---- Windows
  // Every rank's bytes, by rank.
  using AllGather = std::function<Result<std::vector<std::string>>(const std::string& own)>;
  // Collective, before the first call. False, on all ranks: ranks are on several machines or in one process, or some
  // cannot access each other's memory, or memory or code is missing. `kernels`: of the rank's device; null: there are
  // none.
  Result<bool> open_windows(int rank, const RankTable<PeerInfo>& peers, const DirectKernels* kernels,
                            const AllGather& all_gather) TUTTI_EXCLUDES(mutex_);
  // REQUIRES: open_windows() has returned true on this rank.
  [[nodiscard]] const DeviceWindows& windows() const { return windows_; }
  // The rank's part of the call, with `count` elements of each block, from the inputs of all windows to the outputs.
  [[nodiscard]] DirectCall part_by_windows(const Call& call, std::size_t count, int rank) const;

 private:
  struct Member {
    int rank = 0;
    const memory::CudaDevice* device = nullptr;
    std::uint64_t batches = 0;  // batches that it has brought
    std::thread::id thread;     // the thread that brought the last one
    DeviceSubmission* here = nullptr;
    SharedMemory window;  // null: it has none
    bool quiet = false;
  };
  struct Offer;  // a rank's description of its window for the others
  Member& member(int rank) TUTTI_REQUIRES(mutex_);
  bool is_full() TUTTI_EXCLUDES(mutex_);
  bool launches_together() const TUTTI_REQUIRES(mutex_);
  bool has_one_device() const TUTTI_REQUIRES(mutex_);
  // Sets the state of all submissions that are here.
  void settle(DeviceSubmission::State state) TUTTI_REQUIRES(mutex_);
  // Waits until no thread puts batches into their streams.
  void await_launch() TUTTI_REQUIRES(mutex_);
  [[nodiscard]] DirectControl* control(int rank) const;
  Status offer_window(int rank, const DirectKernels* kernels, Offer* offer) TUTTI_EXCLUDES(mutex_);
  Status map_windows(int rank, const DirectKernels* kernels, const std::vector<Offer>& offers,
                     const RankTable<PeerInfo>& peers) TUTTI_EXCLUDES(mutex_);

  const int here_;   // ranks in this process
  const int ranks_;  // of the communicator
  Mutex mutex_;
  ConditionVariable changed_;
  std::vector<Member> members_ TUTTI_GUARDED_BY(mutex_);  // those that have joined, by rank
  bool shares_device_ TUTTI_GUARDED_BY(mutex_) = false;   // two members have the same device
  bool left_ TUTTI_GUARDED_BY(mutex_) = false;            // a member has left
  std::uint64_t settled_ TUTTI_GUARDED_BY(mutex_) = 0;    // batches whose launch is decided
  bool launching_ TUTTI_GUARDED_BY(mutex_) = false;       // a thread puts the batches of all into their streams
  enum class Mailboxes : std::uint8_t { kNone, kBeingOpened, kOpen };
  Mailboxes mailboxes_state_ TUTTI_GUARDED_BY(mutex_) = Mailboxes::kNone;
  // Written before open_mailboxes() and open_windows() return on any rank of this process; only one of the two is used.
  SharedMemory mailboxes_;
  unsigned columns_ = 0;
  DeviceWindows windows_;
  std::array<std::atomic<DirectControl*>, kMostDirectRanks> controls_{};  // by rank; null: memory of another process
  std::atomic<bool> stopped_{false};
};

}  // namespace tutti::internal
