// The communicators of this process by handle, and the rules for entering them.
//
// Operations are exclusive: one thread at a time, with two loads and no atomic read-modify-write. A thread writes into
// its record which communicator it enters, and then checks whether the communicator is open and reserved for this
// thread. Another thread that changes one of these, to free the communicator or to enter it, calls
// asymmetric_fence_heavy() after the change and then reads the records: so one of both sees the other. If the first
// check fails, a thread enters through the table's lock; a communicator whose threads change often always uses the
// lock.
//
// Queries and abort may enter at any time, abort through the lock. A querying thread also writes this into its record,
// and then checks whether the communicator is open; if not, it takes the lock. A thread that frees waits until no
// thread is inside.
#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "api/handle.h"
#include "api/thread_record.h"
#include "communicator/communicator.h"
#include "os/asymmetric_fence.h"
#include "os/fork.h"
#include "os/mutex.h"

namespace tutti::internal::api {

// The table's lock.
inline constinit Mutex comm_table_mutex;

struct alignas(64) CommSlot {
  // Not a valid handle: its index would be beyond all tables.
  static constexpr std::uint64_t kClosed = UINT64_MAX;
  std::atomic<std::uint64_t> open{kClosed};   // the handle while operations may enter
  std::atomic<ThreadRecord*> owner{nullptr};  // the thread that enters without the lock
  Communicator* communicator = nullptr;       // while the handle is valid

  enum class State { kFree, kReserved, kOpen, kDestroying, kFreeing, kInherited };
  State state TUTTI_GUARDED_BY(comm_table_mutex) = State::kFree;
  // A thread that entered through the lock is inside; if it is also inside other communicators, it also counts as a
  // query.
  bool inside TUTTI_GUARDED_BY(comm_table_mutex) = false;
  bool beside TUTTI_GUARDED_BY(comm_table_mutex) = false;
  std::uint32_t generation TUTTI_GUARDED_BY(comm_table_mutex) = 0;  // of the handle, or of the last one
  std::uint32_t changes TUTTI_GUARDED_BY(comm_table_mutex) = 0;     // of owner
  std::uint32_t looks TUTTI_GUARDED_BY(comm_table_mutex) = 0;       // threads inside a query or abort
  std::uint64_t handle TUTTI_GUARDED_BY(comm_table_mutex) = 0;
  pid_t maker TUTTI_GUARDED_BY(comm_table_mutex) = 0;
};

class CommTable final : public ForkAware {
 public:
  static CommTable& instance();

  // In two steps, so that a communicator made together with the peers cannot fail for lack of room.
  Result<std::uint64_t> reserve();
  void cancel(std::uint64_t handle);
  void open(std::uint64_t handle, std::unique_ptr<Communicator> communicator);

  // Finalizes and frees. Waits for the thread inside an operation, if any; abort() and queries may still enter.
  // *finalized: the result of finalize(), without a mismatch that an earlier call has reported.
  Status destroy(std::uint64_t handle, Status* finalized);
  // Fails the communicator and frees it, or waits until a running destroy() has done so.
  Status abort(std::uint64_t handle);

  static CommSlot* find(std::uint64_t handle) {
    const std::uint64_t chunk = index_of(handle) / kChunkSlots;
    if (chunk >= kChunks) return nullptr;
    CommSlot* const slots = chunks_[chunk].load(std::memory_order_acquire);
    return slots == nullptr ? nullptr : slots + index_of(handle) % kChunkSlots;
  }

 private:
  friend class Operating;
  friend class OperatingBeside;
  friend class Looking;
  static constexpr std::size_t kChunkSlots = 64;
  static constexpr std::size_t kChunks = 8192;  // half a million communicators
  // After this number of thread changes, the lock is cheaper than a fence for all other threads.
  static constexpr std::uint32_t kMaxChanges = 8;

  CommTable();
  // Enters an operation through the lock. *shared: leave() must follow.
  Status enter(ThreadRecord* record, std::uint64_t handle, bool* shared) TUTTI_EXCLUDES(comm_table_mutex);
  // The same for a thread that may be inside others.
  Status enter_beside(std::uint64_t handle, CommSlot** slot) TUTTI_EXCLUDES(comm_table_mutex);
  void leave_beside(CommSlot* slot) TUTTI_EXCLUDES(comm_table_mutex);
  // Whether an operation of a thread other than `record`'s may be inside. Afterwards the owner is `record`, or null.
  static bool is_busy(CommSlot* slot, const ThreadRecord* record) TUTTI_REQUIRES(comm_table_mutex);
  void leave(CommSlot* slot) TUTTI_EXCLUDES(comm_table_mutex);
  Status look(std::uint64_t handle, CommSlot** slot) TUTTI_EXCLUDES(comm_table_mutex);
  void end_look(CommSlot* slot) TUTTI_EXCLUDES(comm_table_mutex);
  // The error for a handle that is not open.
  static Status refusal(std::uint64_t handle) TUTTI_REQUIRES(comm_table_mutex);
  static void close(CommSlot* slot, CommSlot::State state) TUTTI_REQUIRES(comm_table_mutex);
  void free(CommSlot* slot) TUTTI_REQUIRES(comm_table_mutex);
  void free_unseen(CommSlot* slot) TUTTI_REQUIRES(comm_table_mutex);
  static void wait_for_users(std::uint64_t handle) TUTTI_EXCLUDES(comm_table_mutex);
  void before_fork() override TUTTI_ACQUIRE(comm_table_mutex) { comm_table_mutex.lock(); }
  void after_fork_in_parent() override TUTTI_RELEASE(comm_table_mutex) { comm_table_mutex.unlock(); }
  void after_fork_in_child() override TUTTI_RELEASE(comm_table_mutex);

  static inline constinit std::array<std::atomic<CommSlot*>, kChunks> chunks_{};  // only grows; never freed

  ConditionVariable changed_;  // signalled at the end of queries and of slots
  std::vector<std::unique_ptr<CommSlot[]>> memory_ TUTTI_GUARDED_BY(comm_table_mutex);
  std::vector<std::uint64_t> free_ TUTTI_GUARDED_BY(comm_table_mutex);  // indices
};

// Enters an operation without the lock, if possible. If not, the record may still name the communicator.
inline bool enters_unlocked(ThreadRecord* record, const CommSlot* slot, std::uint64_t handle) {
  // A stale handle is not published, so that no thread waits for it.
  if (slot == nullptr || slot->open.load(std::memory_order_relaxed) != handle) [[unlikely]]
    return false;
  // Release, for threads that see this instead of the end of the operation before.
  record->operating.store(handle, std::memory_order_release);
  asymmetric_fence_light();
  return slot->owner.load(std::memory_order_relaxed) == record && slot->open.load(std::memory_order_acquire) == handle;
}

// While it exists, the calling thread alone is inside an operation of the communicator, which is not freed.
class Operating {
 public:
  explicit Operating(std::uint64_t handle) : record_(this_thread()), slot_(CommTable::find(handle)) {
    if (record_ != nullptr && enters_unlocked(record_, slot_, handle)) [[likely]]
      return;
    std::tie(status_, shared_) = enter(record_, handle);
  }
  Operating(const Operating&) = delete;
  Operating& operator=(const Operating&) = delete;
  ~Operating() {
    if (shared_) [[unlikely]]
      CommTable::instance().leave(slot_);
    if (record_ != nullptr) [[likely]]
      record_->operating.store(0, std::memory_order_release);
  }

  // Ok if the thread is inside.
  [[nodiscard]] const Status& status() const { return status_; }
  // REQUIRES: status() is ok.
  Communicator* operator->() const { return slot_->communicator; }
  Communicator& operator*() const { return *slot_->communicator; }

 private:
  // Enters through the lock. Static, so that all of this object stays in registers. The bool: leave() must follow.
  static std::pair<Status, bool> enter(ThreadRecord* record, std::uint64_t handle);

  ThreadRecord* const record_;
  CommSlot* const slot_;
  bool shared_ = false;
  Status status_;
};

// The same without the lock; if that is not possible, it has no error text.
class QuicklyOperating {
 public:
  QuicklyOperating(ThreadRecord* record, std::uint64_t handle) : record_(record) {
    const CommSlot* const slot = CommTable::find(handle);
    if (enters_unlocked(record, slot, handle)) [[likely]]
      communicator_ = slot->communicator;
  }
  QuicklyOperating(const QuicklyOperating&) = delete;
  QuicklyOperating& operator=(const QuicklyOperating&) = delete;
  ~QuicklyOperating() { record_->operating.store(0, std::memory_order_release); }

  // Null if the thread is not inside.
  [[nodiscard]] Communicator* get() const { return communicator_; }

 private:
  ThreadRecord* const record_;
  Communicator* communicator_ = nullptr;
};

// As Operating, but a thread may have several of these at a time.
class OperatingBeside {
 public:
  explicit OperatingBeside(std::uint64_t handle) : status_(CommTable::instance().enter_beside(handle, &slot_)) {}
  OperatingBeside(const OperatingBeside&) = delete;
  OperatingBeside& operator=(const OperatingBeside&) = delete;
  ~OperatingBeside() {
    if (slot_ != nullptr) CommTable::instance().leave_beside(slot_);
  }
  [[nodiscard]] const Status& status() const { return status_; }
  // REQUIRES: status() is ok.
  Communicator* operator->() const { return slot_->communicator; }

 private:
  CommSlot* slot_ = nullptr;
  Status status_;
};

// While it exists, the communicator is not freed. Any number of threads, also during an operation. A second one in the
// same thread takes the lock, because the thread's record has room for one.
class Looking {
 public:
  explicit Looking(std::uint64_t handle) : record_(this_thread()), slot_(CommTable::find(handle)) {
    if (record_ != nullptr && slot_ != nullptr && record_->looking.load(std::memory_order_relaxed) == 0 &&
        slot_->open.load(std::memory_order_relaxed) == handle) [[likely]] {
      record_->looking.store(handle, std::memory_order_release);
      asymmetric_fence_light();
      if (slot_->open.load(std::memory_order_acquire) == handle) [[likely]]
        return;
      record_->looking.store(0, std::memory_order_release);
    }
    counted_ = true;
    slot_ = nullptr;
    status_ = CommTable::instance().look(handle, &slot_);
  }
  Looking(const Looking&) = delete;
  Looking& operator=(const Looking&) = delete;
  ~Looking() {
    if (!counted_) [[likely]] {
      record_->looking.store(0, std::memory_order_release);
    } else if (slot_ != nullptr) {
      CommTable::instance().end_look(slot_);
    }
  }
  [[nodiscard]] const Status& status() const { return status_; }
  Communicator* operator->() const { return slot_->communicator; }
  Communicator* get() const { return slot_->communicator; }

 private:
  ThreadRecord* const record_;
  CommSlot* slot_;
  bool counted_ = false;  // by the table, through the lock
  Status status_;
};

}  // namespace tutti::internal::api
