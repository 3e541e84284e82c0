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

// A mark of the entries of a stream at the last recording. Any thread.
class Event {
 public:
  void record(Mark mark) {
    const MutexLock lock(mutex_);
    std::swap(mark_, mark);  // the earlier mark is freed without the lock
  }
  // An empty mark, which is done, if it was never recorded.
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

// Returns status's code. For an error (kInProgress is not an error), stores its text as the last error of the calling
// thread, and of `comm`, if given, unless that has failed.
tuttiResult_t report(const Status& status, Communicator* comm = nullptr) noexcept;
// The same for a call that was refused for its arguments; other ranks may wait for it.
tuttiResult_t report_refusal(const Status& status, Communicator* comm) noexcept;
// The same for a call that could not enter the communicator, perhaps because of another thread.
tuttiResult_t report_refused(const Status& status, tuttiComm_t comm);

// The error of a call `name` in a user-defined operator function.
tuttiResult_t refuse_in_operator(const char* name) noexcept;

// The body of an entry point, with the entry point's name: no exception crosses the C API. An exception of `body` has
// not left a communicator in an inconsistent state, because operations convert their own exceptions into failures. For
// entry points that run user-defined functions, or store the floating-point mode for them; entry() for all others.
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

// The same in the default floating-point mode, so that traps of the program do not affect the library's own arithmetic.
template <class Body>
tuttiResult_t entry(Body&& body, const char* name = __builtin_FUNCTION()) noexcept {
  const InFloatMode standard;
  return entry_in_mode_of_caller(std::forward<Body>(body), name);
}

// A query: body(communicator), with a communicator that is not freed during the call.
template <class Body>
tuttiResult_t look(tuttiComm_t comm, Body&& body, const char* name = __builtin_FUNCTION()) noexcept {
  const auto inside = [&] {
    const Looking looking(number_of(comm));
    return looking.status().is_ok() ? body(looking.get()) : report(looking.status());
  };
  return entry(inside, name);
}

}  // namespace tutti::internal::api
