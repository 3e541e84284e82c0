#include "sim/network.h"

#include <sys/eventfd.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "sim/wire.h"

namespace tutti::internal::transport::sim {

struct Network::State {
  std::mutex mutex;
  std::uint64_t seed = 0;
  Options options;
  std::vector<std::shared_ptr<RankState>> fates;
  std::vector<std::weak_ptr<Wire>> wires;
  std::map<std::pair<int, int>, std::deque<std::shared_ptr<Wire>>> waiting;  // for (rank, peer) to call link()
  std::map<std::pair<int, int>, std::uint64_t> made;                         // links, by (lower, higher) rank

  // REQUIRES: mutex is held.
  std::shared_ptr<Wire> make_wire(int rank, int peer);
  void notify_all();
};

namespace {

std::uint64_t lane_seed(std::uint64_t seed, int from, int to, std::uint64_t generation) {
  Random random(seed ^ static_cast<std::uint64_t>(from) << 40 ^ static_cast<std::uint64_t>(to) << 20 ^ generation);
  random.next();
  return random.next();
}

bool has_slots(Slots slots, std::uint64_t seed) {
  return slots == Slots::kAlways || (slots == Slots::kByLane && (Random(seed).next() & 1u) != 0);
}

}  // namespace

std::shared_ptr<Wire> Network::State::make_wire(int rank, int peer) {
  const std::uint64_t generation = made[std::minmax(rank, peer)]++;
  auto wire = std::make_shared<Wire>(lane_seed(seed, rank, peer, generation), lane_seed(seed, peer, rank, generation),
                                     options.benign);
  for (std::size_t side = 0; side < 2; ++side) {
    End& end = wire->ends[side];
    end.rank = side == 0 ? rank : peer;
    end.fate = fates[static_cast<std::size_t>(end.rank)];
    end.wakeup_fd = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!end.wakeup_fd.valid()) return nullptr;
  }
  wires.push_back(wire);
  return wire;
}

void Network::State::notify_all() {
  for (const std::weak_ptr<Wire>& weak : wires) {
    const std::shared_ptr<Wire> wire = weak.lock();
    if (!wire) continue;
    const std::lock_guard lock(wire->mutex);
    wire->notify(0);
    wire->notify(1);
  }
}

Network::Network(std::uint64_t seed, int ranks, Options options) : state_(std::make_shared<State>()) {
  state_->seed = seed;
  state_->options = options;
  for (int rank = 0; rank < ranks; ++rank) state_->fates.push_back(std::make_shared<RankState>());
}

Network::~Network() = default;

std::unique_ptr<Link> Network::link(int rank, int peer) {
  const std::lock_guard lock(state_->mutex);
  auto& mine = state_->waiting[{rank, peer}];
  const bool first = mine.empty();
  std::shared_ptr<Wire> wire;
  if (first) {
    wire = state_->make_wire(rank, peer);
    if (!wire) return nullptr;
    state_->waiting[{peer, rank}].push_back(wire);
  } else {
    wire = std::move(mine.front());
    mine.pop_front();
  }
  const bool send_slots = has_slots(state_->options.slots, lane_seed(state_->seed, rank, peer, 0));
  const bool recv_slots = has_slots(state_->options.slots, lane_seed(state_->seed, peer, rank, 0));
  return make_end(std::move(wire), first ? 0 : 1, state_->options, send_slots, recv_slots);
}

void Network::kill(int rank) {
  const std::lock_guard lock(state_->mutex);
  state_->fates[static_cast<std::size_t>(rank)]->killed = true;
  state_->notify_all();
}

void Network::stall(int rank) {
  const std::lock_guard lock(state_->mutex);
  state_->fates[static_cast<std::size_t>(rank)]->stalled = true;
}

void Network::resume(int rank) {
  const std::lock_guard lock(state_->mutex);
  state_->fates[static_cast<std::size_t>(rank)]->stalled = false;
  state_->notify_all();
}

}  // namespace tutti::internal::transport::sim
