#include "transport/shm/adapter.h"

#include <algorithm>
#include <map>
#include <utility>

#include "os/mutex.h"
#include "transport/shm/costs.h"
#include "transport/shm/link.h"
#include "transport/shm/pairs.h"
#include "transport/shm/private_memory.h"

namespace tutti::internal {
namespace {

namespace shm = transport::shm;

// At most two slots, or half of those that a link may fill.
constexpr std::size_t kSliceBytes = 64 * 1024;

// Whether ranks are processes that may read each other's memory (kCrossMemoryBytes) in this collective, and no vector
// passes through a rank slice by slice: each read is a system call, so a few long ones are better. Two ranks,
// all-gather: 0.85 of the time with slices of 64 KiB, from 1 to 16 MiB; all-to-all: 0.6 to 0.8 from 128 KiB to 1 MiB;
// broadcast, gather and scatter: 0.85 from 512 KiB to 1 MiB. Oversubscribed ranks read in some of these only.
bool read_each_other(const Ranks& ranks, Collective collective) {
  if (combines(collective) || ranks.reads_processes == MemoryReads::kNever || ranks.ranks() == 1 ||
      ranks.peers[0].process == ranks.peers[1].process)
    return false;
  if (ranks.oversubscribed) return transport::is_read_in_turns(collective);
  return has_blocks(collective) || ranks.ranks() == 2;
}

// The part of a processor's level-2 cache that data in flight may fill. Four ranks on two processors with 2 MiB each,
// where that leaves 2 slots a link: 0.6 to 0.85 of the time from 256 KiB to 2 MiB. Eight ranks, where nothing fits:
// fewer slots take up to 1.4 times as long.
constexpr double kCachedPart = 0.5;

// One segment for each pair.
class ThreadSegments final : public ThreadNetwork {
 public:
  Result<std::unique_ptr<transport::Link>> link(const Ranks& ranks, int to,
                                                std::span<const transport::WakeupFd> wakeup_fds) override {
    const int from = ranks.rank;
    const shm::LinkOptions options{to, !ranks.oversubscribed, slots_ahead(ranks)};
    auto segment = segment_of(std::minmax(from, to), shm::turns_of(options));
    if (!segment.is_ok()) return segment.status();
    return shm::make_private_link((*segment)->link_memory(from > to ? 0 : 1),
                                  wakeup_fds[static_cast<std::size_t>(to)].fd(), options);
  }

 private:
  // The first of the two ranks makes it; the second removes it.
  Result<std::shared_ptr<shm::PrivateSegment>> segment_of(const std::pair<int, int>& pair, shm::Turns turns) {
    const MutexLock lock(mutex_);
    auto& waiting = waiting_[pair];
    if (waiting != nullptr) {
      auto segment = std::move(waiting);
      waiting_.erase(pair);
      return segment;
    }
    auto made = shm::PrivateSegment::create(turns);
    if (made.is_ok()) waiting = *made;
    return made;
  }

  Mutex mutex_;
  // By (lower rank, higher rank).
  std::map<std::pair<int, int>, std::shared_ptr<shm::PrivateSegment>> waiting_ TUTTI_GUARDED_BY(mutex_);
};

class ShmTransport final : public PlainTransport {
 public:
  explicit ShmTransport(bool within_namespace_only) : within_namespace_only_(within_namespace_only) {}

  [[nodiscard]] std::string_view name() const override { return "shm"; }
  [[nodiscard]] TransportCosts costs(const Ranks&) const override { return shm::costs(); }
  [[nodiscard]] std::size_t slice_bytes(const Ranks& ranks, Collective collective) const override {
    if (read_each_other(ranks, collective)) return shm::kMostZcopyBytes;
    return std::min(kSliceBytes, slots_ahead(ranks) * shm::kSlotBytes / 2);
  }
  [[nodiscard]] bool shares_memory(const PeerInfo& a, const PeerInfo& b) const override {
    return a.same_machine(b) && (!within_namespace_only_ || a.network_namespace == b.network_namespace);
  }
  [[nodiscard]] bool connects(const Ranks& ranks, int a, int b) const override {
    const auto& peers = ranks.peers;
    return shares_memory(peers[static_cast<std::size_t>(a)], peers[static_cast<std::size_t>(b)]) &&
           ranks.can_share_memory(a, b);
  }
  [[nodiscard]] std::optional<ConnectionSpec> connects_by() const override {
    return ConnectionSpec{ConnectionKind::kUnix, 0, !within_namespace_only_};
  }
  void inherit(const Transport& parent) override { pairs_ = static_cast<const ShmTransport&>(parent).pairs_; }
  [[nodiscard]] SharedConnections* shared_connections() override { return pairs_.get(); }
  Result<std::unique_ptr<transport::Link>> make_link(PeerConnection, const LinkOwner&, Deadline) override {
    return Status::internal("a link over shared memory has no connection of its own");
  }
  Result<std::unique_ptr<ThreadNetwork>> make_thread_network(int) const override {
    return std::unique_ptr<ThreadNetwork>(std::make_unique<ThreadSegments>());
  }

 private:
  const bool within_namespace_only_;
  std::shared_ptr<ShmPairs> pairs_ = std::make_shared<ShmPairs>();  // shared by the family
};

}  // namespace

std::uint32_t slots_ahead(const Ranks& ranks) {
  const double ranks_per_cpu = ranks.ranks_per_cpu_here;
  if (ranks_per_cpu <= 1) return shm::kSlots;
  const auto host = static_cast<std::size_t>(ranks.host_of[static_cast<std::size_t>(ranks.rank)]);
  const double links = ranks_per_cpu * static_cast<double>(ranks.hosts[host].size() - 1);
  const double fit = kCachedPart * static_cast<double>(ranks.level2_bytes) / (2 * links * shm::kSlotBytes);
  // One slot at a time would need a turn for each; and if the data cannot fit anyway, fewer turns are better.
  return fit < 2 ? shm::kLongBuffers : std::min(shm::kLongBuffers, static_cast<std::uint32_t>(fit));
}

std::shared_ptr<Transport> make_shm_transport(const std::optional<std::string>& option, bool /*asked*/) {
  return option.value_or("netns") == "netns" ? std::make_shared<ShmTransport>(option.has_value()) : nullptr;
}

}  // namespace tutti::internal
