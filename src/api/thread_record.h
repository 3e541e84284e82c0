// The library's record of each calling thread: the communicator that it is inside, and its last error. Records are in
// one linked list, are never freed, and are reused by later threads.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

#include "base/status.h"

namespace tutti::internal::api {

class GroupCalls;

struct alignas(64) ThreadRecord {
  // The communicator handle whose operation the thread is in; 0: none. Written by the thread itself.
  std::atomic<std::uint64_t> operating{0};
  // The communicator that it queries (see Looking). Written by the thread itself.
  std::atomic<std::uint64_t> looking{0};
  std::atomic<bool> taken{true};
  bool in_operator = false;      // only for this thread: it runs a user-defined operator function (InOperator)
  ThreadRecord* next = nullptr;  // constant once the record is in the list
  // Only for this thread.
  GroupCalls* group = nullptr;  // between tuttiGroupStart and tuttiGroupEnd
  GroupCalls* spare = nullptr;  // an empty group, whose memory the next group reuses
  Status last_error;
  Status told;  // keeps the text alive that tuttiGetLastError returned last
};

namespace detail {
// Initial-exec: one load relative to the thread register, instead of a function call. Eight bytes fit into the space
// that the C library reserves for libraries opened later.
[[gnu::tls_model("initial-exec")]] extern constinit thread_local ThreadRecord* record_of_thread;
ThreadRecord* make_record_of_thread() noexcept;
}  // namespace detail

// The calling thread's record. Null if there is no memory and the reserve is used up.
inline ThreadRecord* this_thread() noexcept {
  ThreadRecord* record = detail::record_of_thread;
  return record != nullptr ? record : detail::make_record_of_thread();
}

// Also null if the thread has no record yet.
inline ThreadRecord* this_thread_if_known() noexcept {
  return detail::record_of_thread;
}

// While it exists, the calling thread runs a user-defined operator function, which must not call the library: the
// thread is inside an operation, and its record has room for only one.
class InOperator {
 public:
  InOperator() noexcept : record_(this_thread()) {
    if (record_ != nullptr) before_ = std::exchange(record_->in_operator, true);
  }
  InOperator(const InOperator&) = delete;
  InOperator& operator=(const InOperator&) = delete;
  ~InOperator() {
    if (record_ != nullptr) record_->in_operator = before_;
  }
  [[nodiscard]] static bool here() noexcept {
    const ThreadRecord* const record = this_thread_if_known();
    return record != nullptr && record->in_operator;
  }

 private:
  ThreadRecord* const record_;
  bool before_ = false;
};

// Whether any thread is inside an operation of the communicator, or queries it without the lock. If a change has closed
// the communicator and asymmetric_fence_heavy() was called after it, false is final.
[[nodiscard]] bool any_thread_uses(std::uint64_t handle) noexcept;

// For a forked child, in which only the calling thread exists.
void forget_other_threads() noexcept;

}  // namespace tutti::internal::api
