// What the library keeps of each thread that calls it: the communicator it is inside, and its last error.
// Records are linked in one list, never freed, and used again by later threads.
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
  // The one that it looks at meanwhile or besides (see Looking). Written by the thread itself.
  std::atomic<std::uint64_t> looking{0};
  std::atomic<bool> taken{true};
  bool in_operator = false;      // of this thread alone: it runs the function of an operator (InOperator)
  ThreadRecord* next = nullptr;  // constant once the record is in the list
  // Of this thread alone.
  GroupCalls* group = nullptr;  // between tuttiGroupStart and tuttiGroupEnd
  GroupCalls* spare = nullptr;  // an empty one, whose memory the next group uses
  Status last_error;
  Status told;  // keeps the text alive that tuttiGetLastError returned last
};

namespace detail {
// Initial-exec: one load relative to the thread's register, where the general model calls a function. Eight bytes
// fit the room that the C library keeps for libraries opened later.
[[gnu::tls_model("initial-exec")]] extern constinit thread_local ThreadRecord* record_of_thread;
ThreadRecord* make_record_of_thread() noexcept;
}  // namespace detail

// The calling thread's. Null without memory for one, when a reserve of some is used up as well.
inline ThreadRecord* this_thread() noexcept {
  ThreadRecord* record = detail::record_of_thread;
  return record != nullptr ? record : detail::make_record_of_thread();
}

// Null also if it has none yet.
inline ThreadRecord* this_thread_if_known() noexcept {
  return detail::record_of_thread;
}

// While it lives, the calling thread runs the function of an operator, which must not call the library: the thread is
// inside an operation, and its record has room for one.
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

// Whether any thread is inside an operation of the communicator, or looks at it without the lock. After an
// asymmetric_fence_heavy() that follows the change which keeps others from entering, this is final once it is false.
[[nodiscard]] bool any_thread_uses(std::uint64_t handle) noexcept;

// In a forked child, of whose threads only the calling one is left.
void forget_other_threads() noexcept;

}  // namespace tutti::internal::api
