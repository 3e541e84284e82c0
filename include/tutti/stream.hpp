// Part of tutti/tutti.hpp: streams and events.
#ifndef TUTTI_STREAM_HPP_
#define TUTTI_STREAM_HPP_

#include <functional>
#include <memory>
#include <utility>

#include "tutti/error.hpp"
#include "tutti/streams.h"

namespace tutti {

class Event;

// A queue of operations. The destructor waits for queued operations and drops their errors: call synchronize() first
// to get them. Declare a stream after the buffers that it uses: buffers that are destroyed before the stream are still
// read and written.
class Stream {
 public:
  Stream() {
    tuttiStream_t stream = nullptr;
    check(tuttiStreamCreate(&stream));
    stream_.reset(stream);
  }
  // Waits for all that was queued; throws the first error among it since the last call.
  void synchronize() { check(tuttiStreamSynchronize(stream_.get())); }
  // Whether all that was queued is complete; throws as synchronize(), and does not block.
  [[nodiscard]] bool query() const { return detail::completed(tuttiStreamQuery(stream_.get())); }
  // What is queued after this call waits for what the event stands for.
  void wait(const Event& event);
  // Calls function() once, behind all that was queued (tuttiLaunchHostFunc), and frees it in the same thread.
  void launch(std::function<void()> function) {
    auto kept = std::make_unique<std::function<void()>>(std::move(function));
    check(tuttiLaunchHostFunc(stream_.get(), &Stream::call, kept.get()));
    (void)kept.release();  // call() has it, or has freed it already
  }
  // The stream of the C API, still this object's.
  [[nodiscard]] tuttiStream_t get() const noexcept { return stream_.get(); }

 private:
  static void call(void* function) {
    const std::unique_ptr<std::function<void()>> kept(static_cast<std::function<void()>*>(function));
    (*kept)();
  }

  detail::Owner<tuttiStream_t, tuttiStreamDestroy> stream_;
};

// A mark in a stream: what was queued there when it was recorded last. Complete if it was never recorded.
class Event {
 public:
  Event() {
    tuttiEvent_t event = nullptr;
    check(tuttiEventCreate(&event));
    event_.reset(event);
  }
  // May be called again, with any stream.
  void record(const Stream& stream) { check(tuttiEventRecord(event_.get(), stream.get())); }
  // Waits; throws the first error among it.
  void synchronize() { check(tuttiEventSynchronize(event_.get())); }
  // Whether it is complete; throws as synchronize(), and does not block.
  [[nodiscard]] bool query() const { return detail::completed(tuttiEventQuery(event_.get())); }
  // The event of the C API, still this object's.
  [[nodiscard]] tuttiEvent_t get() const noexcept { return event_.get(); }

 private:
  detail::Owner<tuttiEvent_t, tuttiEventDestroy> event_;
};

inline void Stream::wait(const Event& event) {
  check(tuttiStreamWaitEvent(stream_.get(), event.get()));
}

}  // namespace tutti

#endif  // TUTTI_STREAM_HPP_
