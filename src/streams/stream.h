// A stream orders operations, possibly of several communicators. The progress engine runs each communicator's
// operations in the order in which they were queued, each after its predecessor in the stream if that belongs to
// another communicator. If an operation fails, later operations still run.
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
  // Its entries continue to run.
  ~Stream();
  // Adds an operation after the last one; returns that one (null if none), for which it must wait. If there is no
  // memory, nothing changes.
  std::shared_ptr<Completion> append(const std::shared_ptr<Completion>& completion);
  // Adds an operation that waits for `before`, which was the last one; entries added in between stay in the stream
  // beside it. `before` may be null.
  void append_behind(const std::shared_ptr<Completion>& before, const std::shared_ptr<Completion>& completion);
  // Later entries wait for the event as well, and so do threads that wait for the stream.
  void wait_for(const Mark& event);
  // Waits for all entries; returns the first error since the last call.
  Status synchronize();
  // kInProgress, or as synchronize().
  Status query();
  // The last operation, for which the next one must wait; null: none.
  [[nodiscard]] std::shared_ptr<Completion> last() const;
  // A mark of all present entries.
  [[nodiscard]] Mark mark() const;

 private:
  // A mark whose errors the caller will return to the program.
  Mark ask();
  Status take_error(const Mark& asked);

  const std::shared_ptr<StreamRecord> record_ = std::make_shared<StreamRecord>();
  std::shared_ptr<Completion> last_ TUTTI_GUARDED_BY(streams_mutex);
  std::uint64_t told_ TUTTI_GUARDED_BY(streams_mutex) = 0;  // the last queried place
};

}  // namespace tutti::internal
