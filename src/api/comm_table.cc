#include "api/comm_table.h"

#include <unistd.h>

#include <limits>
#include <new>
#include <utility>

#include "base/first_use.h"
#include "os/look_again.h"

namespace tutti::internal::api {

using State = CommSlot::State;

namespace {

Status another_inside() {
  return Status::invalid_usage(
      "another thread is inside an operation of this communicator, which serves one thread at a time");
}

}  // namespace

CommTable& CommTable::instance() {
  // Never destroyed: user code may free communicators during static destruction.
  static constinit FirstUse<CommTable, Surplus::kKept> only;
  return only.get([] { return CommTable(); });
}

// Not made at first use, because another thread may fork at that moment.
[[maybe_unused]] static const CommTable& made_at_load = CommTable::instance();

CommTable::CommTable() {
  enlist();
}

Result<std::uint64_t> CommTable::reserve() {
  const MutexLock lock(comm_table_mutex);
  if (free_.empty()) {
    const std::size_t chunk = memory_.size();
    if (chunk == kChunks) return Status::invalid_usage("this process has too many communicators");
    // Room for all slots that can ever be freed: freeing must not need memory.
    free_.reserve((chunk + 1) * kChunkSlots);
    memory_.reserve(chunk + 1);
    memory_.push_back(std::make_unique<CommSlot[]>(kChunkSlots));
    for (std::size_t i = kChunkSlots; i-- > 0;) free_.push_back(chunk * kChunkSlots + i);
    chunks_[chunk].store(memory_.back().get(), std::memory_order_release);
  }
  const std::uint64_t index = free_.back();
  free_.pop_back();
  CommSlot& slot = *find(index);
  slot.state = State::kReserved;
  slot.handle = make_handle(HandleKind::kComm, ++slot.generation, index);
  slot.maker = ::getpid();
  slot.changes = 0;
  return slot.handle;
}

void CommTable::open(std::uint64_t handle, std::unique_ptr<Communicator> communicator) {
  const MutexLock lock(comm_table_mutex);
  CommSlot& slot = *find(handle);
  slot.communicator = communicator.release();
  slot.state = State::kOpen;
  slot.owner.store(nullptr, std::memory_order_relaxed);
  slot.open.store(handle, std::memory_order_release);
}

void CommTable::cancel(std::uint64_t handle) {
  const MutexLock lock(comm_table_mutex);
  free(find(handle));
}

void CommTable::free(CommSlot* slot) {
  slot->communicator = nullptr;
  slot->state = State::kFree;
  // A slot whose generations are used up is not used again.
  if (slot->generation != std::numeric_limits<std::uint32_t>::max()) free_.push_back(index_of(slot->handle));
  slot->handle = 0;
  changed_.notify_all();
}

Status CommTable::refusal(std::uint64_t handle) {
  if (handle == 0) return Status::invalid_argument("comm is NULL: no communicator was created");
  const CommSlot* const slot = find(handle);
  if (slot == nullptr || slot->handle != handle || slot->state == State::kFree || slot->state == State::kReserved) {
    return Status::invalid_argument("comm is not a communicator: it was never created, or was destroyed or aborted");
  }
  if (slot->state == State::kInherited) return inherited("the communicator", slot->maker);
  return Status::invalid_argument("another thread is destroying or aborting this communicator");
}

bool CommTable::is_busy(CommSlot* slot, const ThreadRecord* record) {
  ThreadRecord* const before = slot->owner.load(std::memory_order_relaxed);
  if (slot->beside) return true;
  if (before == nullptr || before == record) return slot->inside;
  // A thread that enters now sees that it is no longer the owner, and takes the lock.
  slot->owner.store(nullptr, std::memory_order_relaxed);
  asymmetric_fence_heavy();
  const bool busy = before->operating.load(std::memory_order_acquire) == slot->handle;
  if (busy) slot->owner.store(before, std::memory_order_relaxed);
  if (!busy) ++slot->changes;
  return busy;
}

Status CommTable::enter_beside(std::uint64_t handle, CommSlot** slot) {
  const MutexLock lock(comm_table_mutex);
  CommSlot* const found = find(handle);
  if (found == nullptr || found->handle != handle || found->state != State::kOpen) return refusal(handle);
  if (is_busy(found, nullptr)) return another_inside();
  found->beside = true;
  ++found->looks;
  *slot = found;
  return {};
}

void CommTable::leave_beside(CommSlot* slot) {
  const MutexLock lock(comm_table_mutex);
  slot->beside = false;
  --slot->looks;
  changed_.notify_all();
}

Status CommTable::enter(ThreadRecord* record, std::uint64_t handle, bool* shared) {
  const MutexLock lock(comm_table_mutex);
  CommSlot* const slot = find(handle);
  if (slot == nullptr || slot->handle != handle || slot->state != State::kOpen) return refusal(handle);
  if (is_busy(slot, record)) return another_inside();
  // Before the lock is released: a thread that frees the communicator then finds this thread inside.
  record->operating.store(handle, std::memory_order_release);
  if (slot->changes < kMaxChanges) {
    slot->owner.store(record, std::memory_order_relaxed);
  } else {
    slot->inside = *shared = true;
  }
  return {};
}

void CommTable::leave(CommSlot* slot) {
  const MutexLock lock(comm_table_mutex);
  slot->inside = false;
}

Status CommTable::look(std::uint64_t handle, CommSlot** slot) {
  const MutexLock lock(comm_table_mutex);
  CommSlot* const found = find(handle);
  const bool there = found != nullptr && found->handle == handle;
  if (!there || (found->state != State::kOpen && found->state != State::kDestroying)) return refusal(handle);
  ++found->looks;
  *slot = found;
  return {};
}

void CommTable::end_look(CommSlot* slot) {
  const MutexLock lock(comm_table_mutex);
  if (--slot->looks == 0) changed_.notify_all();
}

// From now on operations cannot enter.
void CommTable::close(CommSlot* slot, State state) {
  slot->state = state;
  slot->open.store(CommSlot::kClosed, std::memory_order_relaxed);
  asymmetric_fence_heavy();
}

// Waits for operations and queries. After an abort that is short: every wait in an operation checks the failure state
// at least every 50 ms.
void CommTable::wait_for_users(std::uint64_t handle) {
  for (LookAgain look; any_thread_uses(handle);) look.pause();
}

Status CommTable::destroy(std::uint64_t handle, Status* finalized) {
  MutexLock lock(comm_table_mutex);
  CommSlot* const slot = find(handle);
  if (slot == nullptr || slot->handle != handle || slot->state != State::kOpen) return refusal(handle);
  close(slot, State::kDestroying);
  while (slot->beside) changed_.wait(comm_table_mutex);
  lock.unlock();
  wait_for_users(handle);
  const bool told = slot->communicator->failures().state().told();
  *finalized = guarded([&] { return slot->communicator->finalize(); });
  if (told && finalized->code() == Code::kMismatch) *finalized = {};
  lock.lock();
  slot->state = State::kFreeing;
  free_unseen(slot);
  return {};
}

Status CommTable::abort(std::uint64_t handle) {
  MutexLock lock(comm_table_mutex);
  CommSlot* const slot = find(handle);
  const bool there = slot != nullptr && slot->handle == handle;
  const bool destroying = there && slot->state == State::kDestroying;
  if (!there || (!destroying && slot->state != State::kOpen)) return refusal(handle);
  if (!destroying) close(slot, State::kFreeing);
  ++slot->looks;
  lock.unlock();
  static_cast<void>(guarded([&] { return slot->communicator->abort(), Status(); }));
  if (!destroying) wait_for_users(handle);
  lock.lock();
  if (--slot->looks == 0) changed_.notify_all();
  if (destroying) {
    while (slot->handle == handle) changed_.wait(comm_table_mutex);
    return {};
  }
  free_unseen(slot);
  return {};
}

// Called when no thread queries the communicator any more. Frees it without the lock, because that may take long. No
// thread can find it: its state is kFreeing.
void CommTable::free_unseen(CommSlot* slot) {
  while (slot->looks != 0) changed_.wait(comm_table_mutex);
  comm_table_mutex.unlock();
  delete slot->communicator;
  comm_table_mutex.lock();
  free(slot);
}

std::pair<Status, bool> Operating::enter(ThreadRecord* record, std::uint64_t handle) {
  if (record == nullptr) return {Status::out_of_memory(), false};
  // Not while another thread checks whether this one is inside.
  record->operating.store(0, std::memory_order_release);
  bool shared = false;
  Status status = CommTable::instance().enter(record, handle, &shared);
  return {std::move(status), shared};
}

// A child has none of the threads that a communicator needs, and must not communicate with the peers: it does not touch
// inherited communicators.
void CommTable::after_fork_in_child() {
  forget_other_threads();
  for (const auto& slots : memory_) {
    for (std::size_t i = 0; i < kChunkSlots; ++i) {
      CommSlot& slot = slots[i];
      if (slot.state == State::kFree) continue;
      slot.state = State::kInherited;
      slot.open.store(CommSlot::kClosed, std::memory_order_relaxed);
      slot.owner.store(nullptr, std::memory_order_relaxed);
    }
  }
  // Threads that do not exist in the child may have waited.
  new (&changed_) ConditionVariable;
  comm_table_mutex.unlock();  // which this thread has locked
}

}  // namespace tutti::internal::api
