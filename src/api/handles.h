// The opaque handles of the C API and the errors of its entry points.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "api/comm_table.h"
#include "api/handle_table.h"
#include "base/float_mode.h"
#include "os/mutex.h"
#include "streams/stream.h"
#include "tutti/tutti.h"

namespace tutti::internal::api {

// What was in a stream when the event was recorded last. Any thread.
class Event {
 public:
  void record(Mark mark) {
    const MutexLock lock(mutex_);
    std::swap(mark_, mark);  // what it stood for before is freed without the lock
  }
  // Nothing, which is done, if it was never recorded.
  [[nodiscard]] Mark recorded() const {
    const MutexLock lock(mutex_);
    return mark_;
  }

 private:
  mutable Mutex mutex_;
  Mark mark_ TUTTI_GUARDED_BY(mutex_);
};

inline HandleTable<Stream, HandleKind::kStream>& streams() {
  return HandleTable<Stream, HandleKind::kStream>::instance("stream");
}
inline HandleTable<Event, HandleKind::kEvent>& events() {
  return HandleTable<Event, HandleKind::kEvent>::instance("event");
}

// Returns status's code. The calling thread's last error text gets that of an error, which kInProgress is not; so does
// comm's, if given, unless it has failed.
tuttiResult_t report(const Status& status, Communicator* comm = nullptr) noexcept;
// The same of a call that was refused for its arguments, for which other ranks may wait.
tuttiResult_t report_refusal(const Status& status, Communicator* comm) noexcept;
// The same of a call that could not enter the communicator, for which another thread may be the reason.
tuttiResult_t report_refused(const Status& status, tuttiComm_t comm);

// The error of a call `name` that the function of an operator has made.
tuttiResult_t refuse_in_operator(const char* name) noexcept;

// The body of an entry point, by the entry point's name: no exception crosses the C API. What `body` throws has left no
// communicator half-done, since operations turn their own exceptions into failures. For what runs functions of the
// program, or keeps the floating-point mode that they run in; entry() for all else.
template <class Body>
tuttiResult_t entry_in_mode_of_caller(Body&& body, const char* name = __builtin_FUNCTION()) noexcept {
  if (InOperator::here()) [[unlikely]]
    return refuse_in_operator(name);
  try {
    return std::forward<Body>(body)();
  } catch (...) {
    return report(Status::of_exception());
  }
}

// The same in the default floating-point mode: exceptions that the program traps do not concern the library's own
// arithmetic.
template <class Body>
tuttiResult_t entry(Body&& body, const char* name = __builtin_FUNCTION()) noexcept {
  const InFloatMode standard;
  return entry_in_mode_of_caller(std::forward<Body>(body), name);
}

// A query: body(communicator) with a communicator that is not freed meanwhile.
template <class Body>
tuttiResult_t look(tuttiComm_t comm, Body&& body, const char* name = __builtin_FUNCTION()) noexcept {
  const auto inside = [&] {
    const Looking looking(number_of(comm));
    return looking.status().is_ok() ? body(looking.get()) : report(looking.status());
  };
  return entry(inside, name);
}

}  // namespace tutti::internal::api
