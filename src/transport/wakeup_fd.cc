#include "transport/wakeup_fd.h"

#include <poll.h>

#include <algorithm>
#include <cstdint>

#include "os/asymmetric_fence.h"

namespace tutti::internal::transport {

Result<WakeupFd> WakeupFd::create() {
  auto event = EventFd::create();
  if (!event.is_ok()) return event.status();
  register_for_asymmetric_fence();
  WakeupFd made(std::move(*event));
  // Most ranks sleep in one thread. Makes its set now, before the program may use up the descriptors.
  auto set = made.make_set();
  if (!set.is_ok()) return set.status();
  made.give_back({std::move(*set), 0, false});
  return made;
}

Result<EventSet> WakeupFd::make_set() const {
  auto set = EventSet::create();
  if (!set.is_ok()) return set;
  if (Status s = set->add_wakeup(fd()); !s.is_ok()) return s;
  return set;
}

// Invalid without a descriptor or memory for it.
EventSet WakeupFd::new_set() const {
  auto made = guarded_result([&] { return make_set(); });
  return made.is_ok() ? std::move(*made) : EventSet();
}

// The user's own set, one without links, or a new one. If there are many, or no descriptor is left, a new set
// replaces that of the user that has not slept for the longest time.
WakeupFd::KeptSet WakeupFd::take_set(std::uint64_t user) const {
  EventSet set;
  {
    const MutexLock lock(state_->mutex);
    auto& sets = state_->sets;
    auto at = std::find_if(sets.begin(), sets.end(), [user](const KeptSet& kept) { return kept.user == user; });
    if (at == sets.end()) {
      at = std::find_if(sets.begin(), sets.end(), [](const KeptSet& kept) { return kept.user == 0; });
    }
    if (at != sets.end()) {
      const bool is_new = at->user != user;
      set = std::move(at->set);
      sets.erase(at);
      return {std::move(set), user, is_new};
    }
    if (sets.size() < kMostUnused) set = new_set();
    if (!set.valid() && !sets.empty()) {
      sets.erase(sets.begin());
      set = new_set();
    }
  }
  return {std::move(set), user, true};
}

void WakeupFd::give_back(KeptSet kept) const {
  if (!kept.set.valid()) return;
  (void)guarded([&] {
    const MutexLock lock(state_->mutex);
    state_->sets.push_back(std::move(kept));
    return Status();
  });
}

SleepingPlace::SleepingPlace(const WakeupFd& wakeup_fd, std::uint64_t user)
    : wakeup_fd_(wakeup_fd), kept_(wakeup_fd.take_set(user)) {}

SleepingPlace::~SleepingPlace() {
  wakeup_fd_.give_back(std::move(kept_));
}

void SleepingPlace::sleep(int longest_ms) const {
  if (kept_.set.valid()) {
    (void)kept_.set.take(longest_ms);
  } else {
    (void)::poll(nullptr, 0, std::min(longest_ms, kUnfencedSleepMs));
  }
}

}  // namespace tutti::internal::transport
