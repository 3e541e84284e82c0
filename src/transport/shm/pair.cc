#include "transport/shm/pair.h"

#include <utility>

#include "memory/region.h"
#include "os/clock.h"
#include "transport/shm/pair_link_memory.h"

namespace tutti::internal::transport::shm {

using memory::RegionRegistry;

Result<std::shared_ptr<Pair>> Pair::create(UniqueFd socket, const WakeupFd& wakeup_fd, int peer, const Self& self) {
  auto arena = Arena::create();
  if (!arena.is_ok()) return arena.status();
  arena->settle(self.node);
  auto block = arena->allocate(sizeof(PairMemory));
  if (!block.is_ok()) return block.status();
  arena->spread(static_cast<std::uint32_t>(self.rank));
  auto* const own = reinterpret_cast<PairMemory*>(block->memory);
  const std::shared_ptr<Pair> pair(new Pair(std::move(socket), std::move(*arena), own, wakeup_fd, peer, self.placing));
  const MutexLock lock(pair->mutex_);
  PairChannel& channel = pair->channel_;
  channel.send({PairMessageKind::kWakeupFd, Turns::kNone, 0, 0}, wakeup_fd.fd());
  channel.send({PairMessageKind::kArena, Turns::kNone, static_cast<std::uint64_t>(self.node + 1), 0},
               pair->links_.arena_fd());
  if (!channel.failure().is_ok()) return channel.failure();
  return pair;
}

Pair::Pair(UniqueFd socket, Arena arena, PairMemory* own, const WakeupFd& wakeup_fd, int peer, Placing placing)
    : socket_(std::move(socket)),
      wakeup_fd_(wakeup_fd),
      placing_(placing),
      own_(*own),
      cross_memory_(own, socket_.get(), peer),
      channel_(socket_.get(), own->sent),
      links_(std::move(arena), channel_),
      regions_(channel_) {}

Pair::~Pair() {
  const MutexLock lock(mutex_);
  channel_.send_rest();
}

bool Pair::is_usable() {
  const MutexLock lock(mutex_);
  return channel_.is_usable();
}

// If a message fails, its content is lost, but later messages are still received.
void Pair::receive_all() {
  channel_.send_rest();
  for (;;) {
    PairChannel::Heard heard = channel_.receive();
    if (heard.arrived) received_.fetch_add(1, std::memory_order_release);
    bool of_region = heard.message.kind == PairMessageKind::kAnnounce || heard.message.kind == PairMessageKind::kForget;
    if (!heard.status.is_ok()) {
      // After the first two descriptors, only regions carry one.
      of_region = links_.has_their_arena() && channel_.peer_wakeup_fd().valid();
    } else if (heard.arrived) {
      heard.status = apply(heard.message, std::move(heard.fd));
    }
    if (!heard.status.is_ok()) {
      if (of_region) {
        regions_.fail(std::move(heard.status));
      } else {
        channel_.fail(std::move(heard.status));
      }
    }
    if (!heard.arrived) return;
  }
}

Status Pair::apply(const PairMessage& message, UniqueFd fd) {
  switch (message.kind) {
    case PairMessageKind::kWakeupFd:
      if (!fd.valid() || channel_.peer_wakeup_fd().valid()) break;
      peer_wakeup_fd_.store(fd.get(), std::memory_order_release);
      channel_.set_peer_wakeup_fd(std::move(fd));
      return {};
    case PairMessageKind::kArena: {
      auto first = links_.apply_arena(message, std::move(fd));
      if (first.is_ok()) theirs_.store(*first, std::memory_order_release);
      return first.status();
    }
    case PairMessageKind::kOpen: return links_.apply_open(message);
    case PairMessageKind::kClose: return links_.apply_close(message.number), Status();
    case PairMessageKind::kForget: forgotten_.fetch_add(1, std::memory_order_release); [[fallthrough]];
    case PairMessageKind::kAnnounce: return regions_.apply(message, std::move(fd));
    default: break;
  }
  return Status::remote("protocol error: an unexpected message about shared memory");
}

// Thousands of threads may wait for links, and look in turn: mostly no message has arrived. But the peer may have
// ended.
void Pair::look() {
  constexpr std::int64_t kLookNs = 1'000'000;
  const std::int64_t now = now_ns();
  if (has_told() || !channel_.all_sent() || now - looked_ns_ >= kLookNs) {
    looked_ns_ = now;
    receive_all();
  }
}

bool Pair::has_told() const {
  const PairMemory* const theirs = theirs_.load(std::memory_order_acquire);
  return theirs == nullptr ||
         theirs->sent.value.load(std::memory_order_acquire) != received_.load(std::memory_order_relaxed);
}

Result<std::unique_ptr<PairLinkMemory>> Pair::open(std::uint64_t id, Turns turns) {
  // If a step after open() fails, its destructor closes this side, without the lock.
  auto memory = std::make_unique<PairLinkMemory>(shared_from_this(), id, turns);
  const MutexLock lock(mutex_);
  receive_all();
  auto side = links_.open(id, turns);
  if (!side.is_ok()) return side.status();
  memory->set_own(reinterpret_cast<SideMemory*>(side->memory));
  channel_.send({PairMessageKind::kOpen, turns, id, side->offset});
  return memory;
}

void Pair::forget(std::uint64_t id) {
  const MutexLock lock(mutex_);
  if (has_told() || !channel_.all_sent()) receive_all();
  links_.forget(id);
}

Result<const SideMemory*> Pair::connect(std::uint64_t id, Turns turns) {
  const MutexLock lock(mutex_);
  const auto is_known = [](Result<const SideMemory*>& theirs) { return !theirs.is_ok() || *theirs != nullptr; };
  auto theirs = links_.theirs(id, turns);
  if (!is_known(theirs) || !channel_.has_opened(id)) {
    look();
    theirs = links_.theirs(id, turns);
  }
  if (is_known(theirs) && channel_.has_opened(id) && channel_.peer_wakeup_fd().valid()) return theirs;
  if (!channel_.failure().is_ok()) return channel_.failure();
  return nullptr;
}

Result<Arena::Block> Pair::extend(std::uint64_t id) {
  const MutexLock lock(mutex_);
  return links_.extend(id);
}

Result<const std::byte*> Pair::view(std::uint64_t offset, std::size_t bytes) {
  const MutexLock lock(mutex_);
  return links_.view(offset, bytes);
}

void Pair::close(std::uint64_t id) noexcept {
  const Status status = guarded([&] {
    const MutexLock lock(mutex_);
    if (!links_.close(id)) return Status();
    receive_all();
    links_.release_if_closed(id);
    return Status();
  });
  (void)status;  // if memory is missing, the arena keeps the block
}

bool Pair::announce(std::uint64_t region) {
  const MutexLock lock(mutex_);
  forget_freed();
  return regions_.announce(region);
}

Result<std::shared_ptr<const MappedRegion>> Pair::region(std::uint64_t number) {
  const MutexLock lock(mutex_);
  auto found = regions_.find(number);
  if (found == nullptr) {
    // The region was announced on the socket before the descriptor was published.
    receive_all();
    found = regions_.find(number);
  }
  if (found != nullptr) return found;
  if (!regions_.failure().is_ok()) return regions_.failure();
  return channel_.failure().is_ok() ? Status::remote("protocol error: a descriptor of a region that was not announced")
                                    : channel_.failure();
}

void Pair::forget_freed() {
  const std::uint64_t now = RegionRegistry::instance().generation();
  if (now == generation_.load(std::memory_order_relaxed)) return;
  generation_.store(now, std::memory_order_relaxed);
  regions_.forget_freed();
}

void Pair::tidy() {
  const bool freed = RegionRegistry::instance().generation() != generation_.load(std::memory_order_relaxed);
  if (!has_told() && !freed) [[likely]]
    return;
  const MutexLock lock(mutex_);
  forget_freed();
  // A failure is reported when an object is requested that could not be received.
  receive_all();
}

void Pair::offer_cross_memory(bool permits) {
  const MutexLock lock(mutex_);
  cross_memory_.offer(permits);
}

void Pair::probe_cross_memory() {
  const PairMemory* const theirs = theirs_.load(std::memory_order_acquire);
  if (theirs == nullptr || cross_memory_.probed()) return;
  const MutexLock lock(mutex_);
  cross_memory_.probe(theirs);
}

}  // namespace tutti::internal::transport::shm
