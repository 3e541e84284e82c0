#include "monitor/live_communicators.h"

#include <algorithm>

#include "base/event_fd.h"
#include "base/first_use.h"
#include "base/status.h"
#include "os/fork.h"

namespace tutti::internal::monitor {

class LiveCommunicators {
 public:
  void add(LiveCommunicator* one) TUTTI_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    all_.push_back(one);
  }
  void remove(LiveCommunicator* one) TUTTI_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    all_.remove(one);
  }

  bool begin(std::uint64_t id, std::int64_t patience_ms, int wake_fd) TUTTI_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    LiveCommunicator* const one = find(id);
    if (one == nullptr) return false;
    wake_fd_ = wake_fd;
    answers_[id].reset();
    one->surveyor_.ask_all(patience_ms);
    return true;
  }

  std::optional<Survey> look(std::uint64_t id, const std::vector<int>& ranks) TUTTI_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    const LiveCommunicator* const one = find(id);
    if (one == nullptr) return std::nullopt;
    Survey survey;
    for (const int rank : ranks) survey.places[rank] = one->surveyor_.place_of(rank);
    survey.dead = one->surveyor_.dead();
    const auto at = answers_.find(id);
    survey.asked = at != answers_.end();
    if (survey.asked) survey.answer = at->second;
    return survey;
  }

  void end() TUTTI_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    answers_.clear();
    wake_fd_ = -1;
  }

  void deliver(std::uint64_t id, const Answer& answer) TUTTI_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    const auto at = answers_.find(id);
    if (at == answers_.end()) return;  // another process has asked
    at->second = answer;
    EventFd::ring(wake_fd_);
  }

 private:
  LiveCommunicator* find(std::uint64_t id) TUTTI_REQUIRES(mutex_) {
    const auto at =
        std::find_if(all_.begin(), all_.end(), [id](const LiveCommunicator* one) { return one->id_ == id; });
    return at == all_.end() ? nullptr : *at;
  }

  // Held while a surveyor is called, which takes locks of its control tree. The tree's thread holds none of these when
  // it delivers.
  ForkMutex mutex_;
  std::list<LiveCommunicator*> all_ TUTTI_GUARDED_BY(mutex_);
  std::map<std::uint64_t, std::optional<Answer>> answers_ TUTTI_GUARDED_BY(mutex_);  // of those that were asked
  int wake_fd_ TUTTI_GUARDED_BY(mutex_) = -1;
};

namespace {

constinit FirstUse<LiveCommunicators, Surplus::kKept> live_communicators;

}  // namespace

LiveCommunicator::LiveCommunicator(std::uint64_t id, Surveyor& surveyor) : id_(id), surveyor_(surveyor) {
  live_communicators.get().add(this);
}

LiveCommunicator::~LiveCommunicator() {
  live_communicators.get().remove(this);
}

bool begin_survey(std::uint64_t id, std::int64_t patience_ms, int wake_fd) {
  return live_communicators.get().begin(id, patience_ms, wake_fd);
}

std::optional<Survey> survey_of(std::uint64_t id, const std::vector<int>& ranks) {
  return live_communicators.get().look(id, ranks);
}

void end_surveys() {
  live_communicators.get().end();
}

// In the tree's thread, which no exception may leave.
void deliver_survey(std::uint64_t id, const Answer& answer) {
  static_cast<void>(guarded([&] { return live_communicators.get().deliver(id, answer), Status(); }));
}

}  // namespace tutti::internal::monitor
