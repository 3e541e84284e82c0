// The pairs (transport/shm/pair.h) of one rank: one for each rank of its machine with which it has connected.
#pragma once

#include <map>
#include <memory>

#include "os/mutex.h"
#include "transport/adapter.h"
#include "transport/shm/pair.h"

namespace tutti::internal {

class ShmPairs final : public SharedConnections {
 public:
  State state(int job_rank) override TUTTI_EXCLUDES(mutex_);
  bool claim(int job_rank) override TUTTI_EXCLUDES(mutex_);
  Status add(int job_rank, PeerConnection channel, const LinkOwner& owner) override TUTTI_EXCLUDES(mutex_);
  void give_up(int job_rank) override TUTTI_EXCLUDES(mutex_);
  void await_change(int longest_ms) override TUTTI_EXCLUDES(mutex_);
  Result<std::unique_ptr<BegunLink>> begin_link(int job_rank, std::uint64_t communicator, int peer,
                                                const LinkOwner& owner) override TUTTI_EXCLUDES(mutex_);
  void forget(std::uint64_t communicator) override TUTTI_EXCLUDES(mutex_);

 private:
  struct KnownPair {
    State state = State::kNone;
    std::shared_ptr<transport::shm::Pair> pair;
  };
  static bool is_lost(const KnownPair& entry);
  void set(int job_rank, KnownPair entry) TUTTI_EXCLUDES(mutex_);

  Mutex mutex_;
  ConditionVariable changed_;
  std::map<int, KnownPair> pairs_ TUTTI_GUARDED_BY(mutex_);
};

}  // namespace tutti::internal
