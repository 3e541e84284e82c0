// Peers that share memory with a rank wake its sleeping threads through an eventfd, one for all communicators of the
// rank in a family. Every such peer holds a copy of it. No thread reads it: each sleeping thread has it in its own
// EventSet, which reports each signal once. So a signal wakes all sleeping threads of the rank, and each checks whether
// it has something to do.
//
// These communicators share the sets as well (SleepingPlace). A set keeps the links of the communicator that slept in
// it last, so that one communicator adds its links once. When another communicator needs the set, a new set replaces
// it.
//
// A rank that is about to sleep publishes a flag in shared memory, makes every other thread's stores visible
// (asymmetric_fence_heavy in os/asymmetric_fence.h), polls once more, and sleeps on its wakeup fd. A rank that has sent
// something reads the flag after its store, and signals if the flag is set. So the data path needs no fence: the
// sleeper pays for it with membarrier(2), whose expedited global form acts on all processes that have registered.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/event_fd.h"
#include "base/status.h"
#include "os/mutex.h"
#include "transport/event_set.h"

namespace tutti::internal::transport {

// Copies are of the same event. Any thread.
class WakeupFd {
 public:
  static Result<WakeupFd> create();
  [[nodiscard]] int fd() const { return state_->event.fd(); }

 private:
  friend class SleepingPlace;
  struct KeptSet {
    EventSet set;
    std::uint64_t user = 0;
    bool is_new = false;  // to its user
  };
  struct State {
    EventFd event;
    Mutex mutex;
    std::vector<KeptSet> sets TUTTI_GUARDED_BY(mutex);  // in which no thread sleeps; the last used one is at the end
  };
  static constexpr std::size_t kMostUnused = 4;  // then a new set replaces that of another user
  explicit WakeupFd(EventFd event) : state_(std::make_shared<State>()) { state_->event = std::move(event); }
  [[nodiscard]] Result<EventSet> make_set() const;
  [[nodiscard]] EventSet new_set() const;
  [[nodiscard]] KeptSet take_set(std::uint64_t user) const TUTTI_EXCLUDES(state_->mutex);
  void give_back(KeptSet kept) const TUTTI_EXCLUDES(state_->mutex);
  std::shared_ptr<State> state_;
};

// The EventSet in which one thread sleeps. There are as many as threads have slept at the same time, and a few that
// keep links of users.
class SleepingPlace {
 public:
  // `user`: the communicator whose links the set may already have; 0: it waits only for signals.
  SleepingPlace(const WakeupFd& wakeup_fd, std::uint64_t user);
  SleepingPlace(const SleepingPlace&) = delete;
  SleepingPlace& operator=(const SleepingPlace&) = delete;
  ~SleepingPlace();
  // Null if there was no descriptor for it: then sleep() is short.
  [[nodiscard]] const EventSet* set() const { return kept_.set.valid() ? &kept_.set : nullptr; }
  // Whether the set has none of the user's links yet.
  [[nodiscard]] bool is_new() const { return kept_.is_new; }
  // Until the next event; an event since the last sleep in this set counts. At most `longest_ms`.
  void sleep(int longest_ms) const;

 private:
  const WakeupFd& wakeup_fd_;
  WakeupFd::KeptSet kept_;
};

}  // namespace tutti::internal::transport
