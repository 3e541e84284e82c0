// What has failed in a stream. Each place in a stream is that of an operation, or of an event that the stream waits
// for; places are numbered from 1 and come to their ends in this order. Streams and events ask for the first error of
// some places: a stream for those behind the last that it was asked for, an event always for those that it stands for.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <utility>

#include "base/status.h"
#include "os/fork.h"
#include "os/mutex.h"
#include "streams/completion.h"

namespace tutti::internal {

// Of all streams and their records, since an event refers from one stream to another.
extern ForkMutex& streams_mutex;

class StreamRecord;

// All that was queued on a stream at some time and not asked for before.
struct Mark {
  std::shared_ptr<Completion> end;  // null: it is done
  std::shared_ptr<StreamRecord> record;
  std::uint64_t after = 0;  // the place that was asked for last
  std::uint64_t through = 0;

  [[nodiscard]] bool done() const { return end == nullptr || end->done(); }
  // The first error, of which the program has been told when this returns. REQUIRES: done().
  [[nodiscard]] Status tell() const;
};

class StreamRecord {
 public:
  struct Error {
    std::uint64_t place = 0;
    Status status;                          // ok: there is none
    std::shared_ptr<FailureState> failure;  // of the communicator that has failed; null if it was none
  };

  // A new last place, the number of which is returned. Without memory nothing has changed.
  std::uint64_t add(std::shared_ptr<Completion> completion) TUTTI_REQUIRES(streams_mutex);
  std::uint64_t add(Mark event) TUTTI_REQUIRES(streams_mutex);
  [[nodiscard]] std::uint64_t last() const TUTTI_REQUIRES(streams_mutex) { return last_; }
  // Somebody will ask for the first error up to this place, and then for the first one behind it.
  void expect(std::uint64_t through) TUTTI_REQUIRES(streams_mutex);
  // The first error of these places, which are done.
  [[nodiscard]] Error first(std::uint64_t after, std::uint64_t through) TUTTI_REQUIRES(streams_mutex);
  // Of all that is done keeps only the errors.
  void collect_all() TUTTI_REQUIRES(streams_mutex) { collect(last_); }
  // Nobody asks for the errors of these places any more.
  void forget(std::uint64_t through) TUTTI_REQUIRES(streams_mutex);

 private:
  struct Item {
    std::uint64_t place;
    std::shared_ptr<Completion> completion;  // null: the event
    Mark event;
    [[nodiscard]] bool done() const { return completion != nullptr ? completion->done() : event.done(); }
  };
  static Error error_of(const Item& item) TUTTI_REQUIRES(streams_mutex);
  std::uint64_t add(Item item) TUTTI_REQUIRES(streams_mutex);
  // Keeps of what is done up to this place only its errors.
  void collect(std::uint64_t through) TUTTI_REQUIRES(streams_mutex);
  // Whether there is something to be collected up to this place.
  [[nodiscard]] bool has_done(std::uint64_t through) const TUTTI_REQUIRES(streams_mutex) {
    return !items_.empty() && items_.front().place <= through && items_.front().done();
  }
  // first(), of what is collected.
  [[nodiscard]] Error find(std::uint64_t after, std::uint64_t through) const TUTTI_REQUIRES(streams_mutex);
  // Of the first item.
  void collect_one() TUTTI_REQUIRES(streams_mutex);

  std::uint64_t last_ TUTTI_GUARDED_BY(streams_mutex) = 0;
  std::uint64_t expected_ TUTTI_GUARDED_BY(streams_mutex) = 0;
  std::deque<Item> items_ TUTTI_GUARDED_BY(streams_mutex);    // what was not done when that was looked at last
  std::deque<Error> errors_ TUTTI_GUARDED_BY(streams_mutex);  // in the order of their places
  // While this is collected for an event in another record: that one, and up to which place.
  StreamRecord* asking_ TUTTI_GUARDED_BY(streams_mutex) = nullptr;
  std::uint64_t asked_through_ TUTTI_GUARDED_BY(streams_mutex) = 0;
};

}  // namespace tutti::internal
