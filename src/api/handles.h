// What the opaque handles of the C API point to.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "communicator/communicator.h"
#include "communicator/stream.h"
#include "tutti/tutti.h"

inline constexpr std::uint64_t kCommMagic = 0x7475747469636f6dULL;
inline constexpr std::uint64_t kStreamMagic = 0x7475747469737472ULL;
inline constexpr std::uint64_t kEventMagic = 0x7475747469657674ULL;

// The magic numbers catch a handle that was never made, is of another kind, or has been freed.
struct tuttiComm {
  std::uint64_t magic = kCommMagic;
  std::unique_ptr<tutti::Communicator> communicator;
};

struct tuttiStream {
  std::uint64_t magic = kStreamMagic;
  tutti::Stream stream;
};

struct tuttiEvent {
  std::uint64_t magic = kEventMagic;
  std::shared_ptr<tutti::Completion> completion;  // null: nothing was queued
};

namespace tutti::api {

// The calling thread's last error text gets `status`'s; so does comm's, if given. Returns its code.
tuttiResult_t report(const Status& status, tuttiComm_t comm = nullptr) noexcept;

// The body of an entry point: no exception crosses the C API. What `body` throws has left no communicator
// half-done, since operations turn their own exceptions into failures.
template <class Body>
tuttiResult_t entry(Body&& body) noexcept {
  try {
    return std::forward<Body>(body)();
  } catch (...) {
    return report(Status::of_exception());
  }
}

inline bool valid(const tuttiComm* comm) {
  return comm != nullptr && comm->magic == kCommMagic;
}
inline bool valid(const tuttiStream* stream) {
  return stream != nullptr && stream->magic == kStreamMagic;
}
inline bool valid(const tuttiEvent* event) {
  return event != nullptr && event->magic == kEventMagic;
}

}  // namespace tutti::api
