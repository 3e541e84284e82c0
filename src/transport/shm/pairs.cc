#include "transport/shm/pairs.h"

#include <fmt/core.h>
#include <sys/socket.h>
#include <unistd.h>

#include <utility>
#include <vector>

#include "transport/shm/adapter.h"
#include "transport/shm/link.h"

namespace tutti::internal {
namespace {

namespace shm = transport::shm;

bool is_own(int socket) {
  ucred peer{};
  socklen_t bytes = sizeof peer;
  return ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 && peer.pid == ::getpid();
}

class BegunShmLink final : public BegunLink {
 public:
  BegunShmLink(std::unique_ptr<shm::PairLinkMemory> memory, bool same_process, const shm::LinkOptions& options)
      : pair_(memory->pair()), memory_(std::move(memory)), same_process_(same_process), options_(options) {}

  Result<std::unique_ptr<transport::Link>> finish() override {
    auto connected = memory_->connect();
    if (!connected.is_ok()) {
      return connected.status().with_context(fmt::format("shared memory with rank {}", options_.peer));
    }
    if (!*connected) return std::unique_ptr<transport::Link>();
    return shm::make_link(std::move(memory_), same_process_, options_);
  }
  [[nodiscard]] int socket() const override { return pair_->socket(); }

 private:
  const std::shared_ptr<shm::Pair> pair_;
  std::unique_ptr<shm::PairLinkMemory> memory_;
  const bool same_process_;
  const shm::LinkOptions options_;
};

}  // namespace

SharedConnections::State ShmPairs::state(int job_rank) {
  const MutexLock lock(mutex_);
  const auto at = pairs_.find(job_rank);
  return at == pairs_.end() || is_lost(at->second) ? State::kNone : at->second.state;
}

// The peer may have had no descriptor for its end. Existing links keep their pair.
bool ShmPairs::is_lost(const KnownPair& entry) {
  return entry.state == State::kMade && !entry.pair->is_usable();
}

bool ShmPairs::claim(int job_rank) {
  const MutexLock lock(mutex_);
  KnownPair& entry = pairs_[job_rank];
  if (entry.state != State::kNone && !is_lost(entry)) return false;
  entry = {State::kBeingMade, nullptr};
  return true;
}

void ShmPairs::set(int job_rank, KnownPair entry) {
  const MutexLock lock(mutex_);
  pairs_[job_rank] = std::move(entry);
  changed_.notify_all();
}

Status ShmPairs::add(int job_rank, PeerConnection channel, const LinkOwner& owner) {
  // If the Unix socket cannot be reached, TCP replaces it.
  if (channel.kind != ConnectionKind::kUnix) {
    set(job_rank, {State::kOutOfReach, nullptr});
    return {};
  }
  const shm::Pair::Self self{owner.ranks.rank, channel.dialled ? shm::Placing::kSecond : shm::Placing::kFirst,
                             owner.ranks.node};
  auto pair = shm::Pair::create(channel.streams[0].release(), owner.wakeup_fd, job_rank, self);
  if (!pair.is_ok()) return pair.status().with_context(fmt::format("shared memory with rank {}", channel.peer));
  set(job_rank, {State::kMade, std::move(*pair)});
  return {};
}

void ShmPairs::give_up(int job_rank) {
  if (state(job_rank) == State::kBeingMade) set(job_rank, {});
}

void ShmPairs::await_change(int longest_ms) {
  const MutexLock lock(mutex_);
  (void)changed_.wait_until(mutex_, Deadline::after_ms(longest_ms));
}

Result<std::unique_ptr<BegunLink>> ShmPairs::begin_link(int job_rank, std::uint64_t communicator, int peer,
                                                        const LinkOwner& owner) {
  std::shared_ptr<shm::Pair> pair;
  {
    const MutexLock lock(mutex_);
    pair = pairs_.at(job_rank).pair;
  }
  if (pair == nullptr) return std::unique_ptr<BegunLink>();
  const Ranks& m = owner.ranks;
  // The kernel identifies the process at the other end: only that process may use the addresses that it sends.
  const bool same_process =
      m.peers[static_cast<std::size_t>(peer)].process == m.peers[static_cast<std::size_t>(m.rank)].process &&
      is_own(pair->socket());
  const shm::LinkOptions options{peer, !m.oversubscribed, slots_ahead(m), m.reads_processes};
  auto memory = pair->open(communicator, shm::turns_of(options));
  if (!memory.is_ok()) return memory.status().with_context(fmt::format("shared memory with rank {}", peer));
  return std::unique_ptr<BegunLink>(std::make_unique<BegunShmLink>(std::move(*memory), same_process, options));
}

void ShmPairs::forget(std::uint64_t communicator) {
  std::vector<std::shared_ptr<shm::Pair>> pairs;
  {
    const MutexLock lock(mutex_);
    for (const auto& [job_rank, entry] : pairs_) {
      if (entry.pair != nullptr) pairs.push_back(entry.pair);
    }
  }
  for (const auto& pair : pairs) pair->forget(communicator);
}

}  // namespace tutti::internal
