#include "api/thread_record.h"

#include <pthread.h>

#include <array>
#include <cstddef>
#include <new>
#include <utility>

#include "api/groups.h"

namespace tutti::internal::api {
namespace {

constinit std::atomic<ThreadRecord*> first{nullptr};

void release(void* record) {
  auto* const mine = static_cast<ThreadRecord*>(record);
  delete std::exchange(mine->group, nullptr);  // one that was never ended
  delete std::exchange(mine->spare, nullptr);
  mine->last_error = {};
  mine->told = {};
  mine->in_operator = false;  // the function has ended its thread
  // If a later destructor of this thread calls the library, it gets another record.
  detail::record_of_thread = nullptr;
  mine->taken.store(false, std::memory_order_release);
}

// Not a thread_local object: destructors of these may call the library, and keys are destroyed after them.
struct ExitKey {
  ExitKey() : valid(::pthread_key_create(&key, release) == 0) {}
  ExitKey(const ExitKey&) = delete;
  ExitKey& operator=(const ExitKey&) = delete;
  // When the library is unloaded: threads that end later must not call into it.
  ~ExitKey() {
    if (valid) ::pthread_key_delete(key);
  }
  pthread_key_t key{};
  bool valid;  // false, like all static memory, for calls before its construction
};
ExitKey exit_key;

// Reserve for threads whose first call happens when there is no memory: the call must fail the communicator, so that
// peers do not wait, and the error text needs a record.
constexpr std::size_t kReserve = 64;
alignas(ThreadRecord) constinit std::array<std::byte, kReserve * sizeof(ThreadRecord)> reserve{};
constinit std::atomic<std::size_t> reserve_used{0};

ThreadRecord* make_record() {
  if (auto* const made = new (std::nothrow) ThreadRecord; made != nullptr) return made;
  const std::size_t index = reserve_used.fetch_add(1, std::memory_order_relaxed);
  // Never destroyed, like all records.
  return index < kReserve ? new (&reserve[index * sizeof(ThreadRecord)]) ThreadRecord : nullptr;
}

ThreadRecord* take_free_record() {
  for (ThreadRecord* r = first.load(std::memory_order_acquire); r != nullptr; r = r->next) {
    bool taken = false;
    if (!r->taken.load(std::memory_order_relaxed) &&
        r->taken.compare_exchange_strong(taken, true, std::memory_order_acquire)) {
      return r;
    }
  }
  ThreadRecord* const made = make_record();
  if (made == nullptr) return nullptr;
  made->next = first.load(std::memory_order_relaxed);
  // Sequentially consistent, like the traversal, so that it misses no record that was already in use.
  while (!first.compare_exchange_weak(made->next, made)) {
  }
  return made;
}

}  // namespace

[[gnu::tls_model("initial-exec")]] constinit thread_local ThreadRecord* detail::record_of_thread = nullptr;

ThreadRecord* detail::make_record_of_thread() noexcept {
  ThreadRecord* const record = take_free_record();
  // If the key is not valid, the record stays in use after the thread's end; it is small.
  if (record != nullptr && exit_key.valid) (void)::pthread_setspecific(exit_key.key, record);
  record_of_thread = record;
  return record;
}

bool any_thread_uses(std::uint64_t handle) noexcept {
  for (const ThreadRecord* r = first.load(); r != nullptr; r = r->next) {
    if (r->operating.load(std::memory_order_acquire) == handle) return true;
    if (r->looking.load(std::memory_order_acquire) == handle) return true;
  }
  return false;
}

void forget_other_threads() noexcept {
  for (ThreadRecord* r = first.load(); r != nullptr; r = r->next) {
    if (r == detail::record_of_thread) {
      r->in_operator = false;  // the child may call the library, because the function must not return
      continue;
    }
    r->operating.store(0, std::memory_order_relaxed);
    r->looking.store(0, std::memory_order_relaxed);
  }
}

}  // namespace tutti::internal::api
