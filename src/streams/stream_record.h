// The errors of a stream. Each place in a stream is an operation, or an event for which the stream waits; places are
// numbered from 1 and end in this order. Streams and events query the first error of a range of places: a stream for
// those after its last query, an event always for those that it marks.
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

// The lock of all streams and their records, because an event refers from one stream to another.
extern ForkMutex& streams_mutex;

class StreamRecord;

// The entries of a stream at some time that had not been queried before.
struct Mark {
  std::shared_ptr<Completion> end;  // null: it is done
  std::shared_ptr<StreamRecord> record;
  std::uint64_t after = 0;  // the place that was asked for last
  std::uint64_t through = 0;

  [[nodiscard]] bool done() const { return end == nullptr || end->done(); }
  // The first error, which is then marked as reported to the program. REQUIRES: done().
  [[nodiscard]] Status tell() const;
};

class StreamRecord {
 public:
  struct Error {
    std::uint64_t place = 0;
    Status status;                          // ok: there is no error
    std::shared_ptr<FailureState> failure;  // of the failed communicator; null if it was not a communicator's error
  };

  // Adds a place at the end and returns its number. If there is no memory, nothing changes.
  std::uint64_t add(std::shared_ptr<Completion> completion) TUTTI_REQUIRES(streams_mutex);
  std::uint64_t add(Mark event) TUTTI_REQUIRES(streams_mutex);
  [[nodiscard]] std::uint64_t last() const TUTTI_REQUIRES(streams_mutex) { return last_; }
  // A later call will query the first error up to this place, and then the first one after it.
  void expect(std::uint64_t through) TUTTI_REQUIRES(streams_mutex);
  // The first error of these places, which are done.
  [[nodiscard]] Error first(std::uint64_t after, std::uint64_t through) TUTTI_REQUIRES(streams_mutex);
  // Keeps only the errors of done places.
  void collect_all() TUTTI_REQUIRES(streams_mutex) { collect(last_); }
  // The errors of these places will not be queried any more.
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
  // Keeps only the errors of the done places up to this one.
  void collect(std::uint64_t through) TUTTI_REQUIRES(streams_mutex);
  // Whether there is something to collect up to this place.
  [[nodiscard]] bool has_done(std::uint64_t through) const TUTTI_REQUIRES(streams_mutex) {
    return !items_.empty() && items_.front().place <= through && items_.front().done();
  }
  // first(), for collected places.
  [[nodiscard]] Error find(std::uint64_t after, std::uint64_t through) const TUTTI_REQUIRES(streams_mutex);
  // Collects the first item.
  void collect_one() TUTTI_REQUIRES(streams_mutex);

  std::uint64_t last_ TUTTI_GUARDED_BY(streams_mutex) = 0;
  std::uint64_t expected_ TUTTI_GUARDED_BY(streams_mutex) = 0;
  std::deque<Item> items_ TUTTI_GUARDED_BY(streams_mutex);    // items that were not done at the last check
  std::deque<Error> errors_ TUTTI_GUARDED_BY(streams_mutex);  // in the order of their places
  // While this is collected for an event in another record: that record, and the last place to collect.
  StreamRecord* asking_ TUTTI_GUARDED_BY(streams_mutex) = nullptr;
  std::uint64_t asked_through_ TUTTI_GUARDED_BY(streams_mutex) = 0;
};

}  // namespace tutti::internal
