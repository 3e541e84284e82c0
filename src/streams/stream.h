// A stream is an order among operations, possibly of several communicators; the progress engine runs each
// communicator's operations in the order in which they were queued, each behind the operation before in the same stream
// if that belongs to another communicator. An error is that of its own operation: what is queued behind it runs.
#pragma once

#include <cstdint>
#include <memory>

#include "base/status.h"
#include "os/mutex.h"
#include "streams/completion.h"
#include "streams/stream_record.h"

namespace tutti::internal {

// Any thread; the order of enqueueing is that of the calls.
class Stream {
 public:
  Stream() = default;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  // What is in it goes on.
  ~Stream();
  // Adds an operation, which follows the one before it; returns that (null if none), which it must wait for. Without
  // memory nothing has changed.
  std::shared_ptr<Completion> append(const std::shared_ptr<Completion>& completion);
  // Adds an operation that waits for `before`, which was the last one; what has come behind that meanwhile stays in the
  // stream beside it. `before` may be null.
  void append_behind(const std::shared_ptr<Completion>& before, const std::shared_ptr<Completion>& completion);
  // What is appended after this call waits for the event as well, and so does who waits for the stream.
  void wait_for(const Mark& event);
  // Waits for all; returns the first error of what was appended since the last call.
  Status synchronize();
  // kInProgress, or as synchronize().
  Status query();
  // The last operation, behind which another has to run; null: nothing has to be waited for.
  [[nodiscard]] std::shared_ptr<Completion> last() const;
  // All that is in the stream now.
  [[nodiscard]] Mark mark() const;

 private:
  // Whoever calls it asks for the errors of the mark.
  Mark ask();
  Status take_error(const Mark& asked);

  const std::shared_ptr<StreamRecord> record_ = std::make_shared<StreamRecord>();
  std::shared_ptr<Completion> last_ TUTTI_GUARDED_BY(streams_mutex);
  std::uint64_t told_ TUTTI_GUARDED_BY(streams_mutex) = 0;  // the place that was asked for last
};

}  // namespace tutti::internal
