// Streams and events of the C API.
#include "api/handles.h"
#include "streams/host_functions.h"

using namespace tutti::internal::api;  // NOLINT: this file is the C face of that namespace
using tutti::internal::HostFunctions;
using tutti::internal::Mark;
using tutti::internal::Status;
using tutti::internal::Stream;

// Not made at first use, because another thread may fork at that moment.
[[maybe_unused]] static const auto& streams_made_at_load = streams();
[[maybe_unused]] static const auto& events_made_at_load = events();

tuttiResult_t tuttiStreamCreate(tuttiStream_t* stream) {
  return entry([&] {
    if (stream == nullptr) return report(Status::invalid_argument("stream is NULL"));
    auto handle = streams().add(std::make_shared<Stream>());
    if (!handle.is_ok()) return report(handle.status());
    *stream = reinterpret_cast<tuttiStream_t>(*handle);
    return tuttiSuccess;
  });
}

// The error for a thread that must not wait.
static Status check_wait(const Mark& mark) {
  return !HostFunctions::runs_here() || mark.done() ? Status() : HostFunctions::waits_here();
}

tuttiResult_t tuttiStreamSynchronize(tuttiStream_t stream) {
  return entry([&] {
    auto found = streams().find(number_of(stream));
    if (!found.is_ok()) return report(found.status());
    if (!HostFunctions::runs_here()) return report((*found)->synchronize());
    // It must not wait for entries of other threads either.
    const Status now = (*found)->query();
    return report(now.code() == tutti::internal::Code::kInProgress ? HostFunctions::waits_here() : now);
  });
}

tuttiResult_t tuttiStreamQuery(tuttiStream_t stream) {
  return entry([&] {
    auto found = streams().find(number_of(stream));
    return report(found.is_ok() ? (*found)->query() : found.status());
  });
}

tuttiResult_t tuttiStreamDestroy(tuttiStream_t stream) {
  return entry([&] {
    if (stream == nullptr) return tuttiSuccess;
    auto found = streams().find(number_of(stream));
    if (!found.is_ok()) return report(found.status());
    if (const Status s = check_wait((*found)->mark()); !s.is_ok()) return report(s);
    auto taken = streams().take(number_of(stream));
    return report(taken.is_ok() ? (*taken)->synchronize() : taken.status());
  });
}

tuttiResult_t tuttiLaunchHostFunc(tuttiStream_t stream, tuttiHostFn_t function, void* data) {
  return entry_in_mode_of_caller([&] {
    if (function == nullptr) return report(Status::invalid_argument("function is NULL"));
    auto found = streams().find(number_of(stream));
    return report(found.is_ok() ? HostFunctions::instance().launch(**found, function, data) : found.status());
  });
}

tuttiResult_t tuttiEventCreate(tuttiEvent_t* event) {
  return entry([&] {
    if (event == nullptr) return report(Status::invalid_argument("event is NULL"));
    auto handle = events().add(std::make_shared<Event>());
    if (!handle.is_ok()) return report(handle.status());
    *event = reinterpret_cast<tuttiEvent_t>(*handle);
    return tuttiSuccess;
  });
}

tuttiResult_t tuttiEventRecord(tuttiEvent_t event, tuttiStream_t stream) {
  return entry([&] {
    auto found = events().find(number_of(event));
    if (!found.is_ok()) return report(found.status());
    auto queue = streams().find(number_of(stream));
    if (!queue.is_ok()) return report(queue.status());
    (*found)->record((*queue)->mark());
    return tuttiSuccess;
  });
}

tuttiResult_t tuttiStreamWaitEvent(tuttiStream_t stream, tuttiEvent_t event) {
  return entry([&] {
    auto queue = streams().find(number_of(stream));
    if (!queue.is_ok()) return report(queue.status());
    auto found = events().find(number_of(event));
    if (!found.is_ok()) return report(found.status());
    (*queue)->wait_for((*found)->recorded());
    return tuttiSuccess;
  });
}

tuttiResult_t tuttiEventQuery(tuttiEvent_t event) {
  return entry([&] {
    auto found = events().find(number_of(event));
    if (!found.is_ok()) return report(found.status());
    const Mark mark = (*found)->recorded();
    return mark.done() ? report(mark.tell()) : tuttiInProgress;
  });
}

tuttiResult_t tuttiEventSynchronize(tuttiEvent_t event) {
  return entry([&] {
    auto found = events().find(number_of(event));
    if (!found.is_ok()) return report(found.status());
    const Mark mark = (*found)->recorded();
    if (const Status s = check_wait(mark); !s.is_ok()) return report(s);
    if (mark.end != nullptr) mark.end->wait_until_done();
    return report(mark.tell());
  });
}

tuttiResult_t tuttiEventDestroy(tuttiEvent_t event) {
  return entry([&] {
    if (event == nullptr) return tuttiSuccess;
    return report(events().take(number_of(event)).status());
  });
}
