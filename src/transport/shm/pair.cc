#include "transport/shm/pair.h"

#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "memory/region.h"
#include "os/clock.h"
#include "os/numa.h"
#include "transport/end_watch.h"
#include "transport/shm/fd_message.h"

namespace tutti::internal::transport::shm {
namespace {

const char* name_of(Turns turns) {
  return turns == Turns::kNone ? "processors of their own" : "turns on processors";
}

}  // namespace

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
  pair->send_in_order({PairMessageKind::kWakeupFd, Turns::kNone, 0, 0}, wakeup_fd.fd());
  pair->send_in_order({PairMessageKind::kArena, Turns::kNone, static_cast<std::uint64_t>(self.node + 1), 0},
                      pair->arena_.fd());
  if (!pair->failure_.is_ok()) return pair->failure_;
  return pair;
}

Pair::Pair(UniqueFd socket, Arena arena, PairMemory* own, const WakeupFd& wakeup_fd, int peer, Placing placing)
    : socket_(std::move(socket)),
      wakeup_fd_(wakeup_fd),
      peer_(peer),
      placing_(placing),
      own_(*own),
      arena_(std::move(arena)),
      cross_memory_(own, socket_.get(), peer) {}

Pair::~Pair() {
  const MutexLock lock(mutex_);
  send_rest();
}

bool Pair::send(const PairMessage& message, int fd) {
  if (const int error = send_with_fd(socket_.get(), &message, sizeof message, fd); error != 0) {
    // An end that has closed shows itself to receive_all(), after what the peer has said last. A region that cannot be
    // announced is copied.
    const bool closed = error == EPIPE || error == ECONNRESET;
    if (!is_full(error) && !closed && message.kind != PairMessageKind::kAnnounce) {
      const char* const what = fd >= 0 ? "passing a descriptor to the peer by sendmsg(2)" : "writing to the peer";
      note(Status::system(what, error), false);
    }
    return false;
  }
  own_.sent.value.fetch_add(1, std::memory_order_release);
  // Who waits for the link may sleep.
  if (message.kind == PairMessageKind::kOpen) {
    rings_later_ = !peer_wakeup_fd_.valid();
    if (!rings_later_) EventFd::ring(peer_wakeup_fd_.get());
  }
  return true;
}

void Pair::send_in_order(const PairMessage& message, int fd) {
  send_rest();
  if (!unsent_.empty() || !send(message, fd)) unsent_.push_back({message, fd});
}

void Pair::send_rest() {
  std::size_t sent = 0;
  while (sent < unsent_.size() && send(unsent_[sent].message, unsent_[sent].fd)) ++sent;
  unsent_.erase(unsent_.begin(), unsent_.begin() + static_cast<std::ptrdiff_t>(sent));
}

void Pair::note(Status failed, bool of_region) {
  Status& first = of_region ? region_failure_ : failure_;
  if (first.is_ok()) first = std::move(failed);
  // Both sides make a new pair for the links to come.
  if (!of_region) (void)::shutdown(socket_.get(), SHUT_RDWR);
}

bool Pair::is_usable() {
  const MutexLock lock(mutex_);
  return failure_.is_ok() && !EndWatch::hung_up(socket_.get());
}

// A message that fails is over: what it told of is lost, and what follows is received all the same.
void Pair::receive_all() {
  send_rest();
  for (;;) {
    PairMessage message{};
    UniqueFd fd;
    const ssize_t n = receive_with_fd(socket_.get(), &message, sizeof message, &fd);
    const int error = n < 0 ? errno : 0;
    if (error == EAGAIN || error == EWOULDBLOCK) return;
    if (error != 0 && error != ECONNRESET) {
      // Of descriptors only those of regions come after the first two.
      note(Status::system("receiving the peer's memory", error), view_ && peer_wakeup_fd_.valid());
      if (error != EMFILE) return;
      received_.fetch_add(1, std::memory_order_release);  // the message came, its descriptor did not
      continue;
    }
    if (n != static_cast<ssize_t>(sizeof message))
      return note(Status::remote("the peer closed the socket over which it tells of its memory"), false);
    received_.fetch_add(1, std::memory_order_release);
    const bool of_region = message.kind == PairMessageKind::kAnnounce || message.kind == PairMessageKind::kForget;
    if (Status s = apply(message, std::move(fd)); !s.is_ok()) note(std::move(s), of_region);
  }
}

Status Pair::apply(const PairMessage& message, UniqueFd fd) {
  switch (message.kind) {
    case PairMessageKind::kWakeupFd:
      if (!fd.valid() || peer_wakeup_fd_.valid()) break;
      peer_wakeup_fd_ = std::move(fd);
      peer_wakeup_number_.store(peer_wakeup_fd_.get(), std::memory_order_release);
      if (std::exchange(rings_later_, false)) EventFd::ring(peer_wakeup_fd_.get());
      return {};
    case PairMessageKind::kArena: return apply_arena(message, std::move(fd));
    case PairMessageKind::kOpen: return apply_open(message);
    case PairMessageKind::kClose: return apply_close(message.number), Status();
    case PairMessageKind::kAnnounce:
    case PairMessageKind::kForget: return apply_region(message, std::move(fd));
    default: break;
  }
  return Status::remote("protocol error: an unexpected message about shared memory");
}

Status Pair::apply_arena(const PairMessage& message, UniqueFd fd) {
  if (message.number > std::uint64_t{kMostNodes}) {
    return Status::remote("protocol error: a NUMA node that no machine has");
  }
  peer_node_ = static_cast<int>(message.number) - 1;
  if (!fd.valid() || view_) return Status::remote("protocol error: a second arena, or none");
  auto view = ArenaView::open(std::move(fd));
  if (!view.is_ok()) return view.status();
  view_.emplace(std::move(*view));
  auto theirs = view_->at(0, sizeof(PairMemory));
  if (!theirs.is_ok()) return theirs.status();
  theirs_.store(reinterpret_cast<const PairMemory*>(*theirs), std::memory_order_release);
  return {};
}

Status Pair::apply_open(const PairMessage& message) {
  if (!view_ || message.place % alignof(SideMemory) != 0 || their_links_.contains(message.number)) {
    return Status::remote("protocol error: an unexpected message about a link");
  }
  auto side = view_->at(message.place, sizeof(SideMemory));
  if (!side.is_ok()) return side.status();
  their_links_[message.number] = {reinterpret_cast<const SideMemory*>(*side), message.turns, false};
  return {};
}

// The peer reads nothing of this side's any more, and waits for the same answer.
void Pair::apply_close(std::uint64_t id) {
  const auto theirs = their_links_.find(id);
  const bool answered = theirs != their_links_.end() && theirs->second.answered;
  const auto own = links_.find(id);
  if (own != links_.end()) {
    own->second.peer_closed = true;
    if (own->second.closed) release(own);
  } else if (theirs != their_links_.end()) {
    their_links_.erase(theirs);
    if (!answered) send_in_order({PairMessageKind::kClose, Turns::kNone, id, 0});
  }
}

Result<std::unique_ptr<PairLinkMemory>> Pair::open(std::uint64_t id, Turns turns) {
  std::unique_ptr<PairLinkMemory> memory;  // what fails closes it, without the lock
  const MutexLock lock(mutex_);
  receive_all();
  if (links_.contains(id)) return Status::internal("a link is made a second time");
  auto block = arena_.allocate(sizeof(SideMemory));
  if (!block.is_ok()) return block.status();
  memory =
      std::make_unique<PairLinkMemory>(shared_from_this(), id, turns, *reinterpret_cast<SideMemory*>(block->memory));
  links_[id] = {*block, {}, turns, false, false};
  send_in_order({PairMessageKind::kOpen, turns, id, block->offset});
  return memory;
}

// Thousands may wait for links, and look in turn: there is mostly nothing to hear. But the peer may have ended.
void Pair::look() {
  constexpr std::int64_t kLookNs = 1'000'000;
  const std::int64_t now = now_ns();
  if (has_told() || !unsent_.empty() || now - looked_ns_ >= kLookNs) {
    looked_ns_ = now;
    receive_all();
  }
}

bool Pair::has_told() const {
  const PairMemory* const theirs = theirs_.load(std::memory_order_acquire);
  return theirs == nullptr ||
         theirs->sent.value.load(std::memory_order_acquire) != received_.load(std::memory_order_relaxed);
}

bool Pair::has_told_of(std::uint64_t id) const {
  return std::none_of(unsent_.begin(), unsent_.end(), [id](const Unsent& unsent) {
    return unsent.message.kind == PairMessageKind::kOpen && unsent.message.number == id;
  });
}

Result<const SideMemory*> Pair::find_theirs(std::uint64_t id, Turns turns) {
  const MutexLock lock(mutex_);
  if (!their_links_.contains(id) || !has_told_of(id)) look();
  const auto at = their_links_.find(id);
  if (at == their_links_.end() || !has_told_of(id) || !peer_wakeup_fd_.valid()) {
    if (!failure_.is_ok()) return failure_;
    return nullptr;
  }
  if (at->second.turns == turns) return at->second.memory;
  return Status::remote(fmt::format("the two sides do not agree on how ranks share processors: {} there, {} here",
                                    name_of(at->second.turns), name_of(turns)));
}

Result<Arena::Block> Pair::extend(std::uint64_t id) {
  const MutexLock lock(mutex_);
  Own& own = links_.at(id);
  if (own.extension.memory != nullptr) return own.extension;
  auto block = arena_.allocate(Extension::placed_bytes(own.turns));
  if (!block.is_ok()) return block;
  own.extension = *block;
  if (peer_node_ >= 0) prefer_node(block->memory, Extension::placed_bytes(own.turns), peer_node_);
  return block;
}

Result<const std::byte*> Pair::view(std::uint64_t offset, std::size_t bytes) {
  const MutexLock lock(mutex_);
  return view_->at(offset, bytes);
}

void Pair::close(std::uint64_t id) noexcept {
  const Status status = guarded([&] {
    const MutexLock lock(mutex_);
    const auto own = links_.find(id);
    if (own == links_.end()) return Status();
    own->second.closed = true;
    reinterpret_cast<SideMemory*>(own->second.side.memory)->end.closed.store(1, std::memory_order_release);
    send_in_order({PairMessageKind::kClose, Turns::kNone, id, 0});
    receive_all();
    if (const auto still = links_.find(id); still != links_.end() && still->second.peer_closed) release(still);
    return Status();
  });
  (void)status;  // for want of memory: the arena keeps what it has
}

void Pair::release(std::map<std::uint64_t, Own>::iterator own) {
  const Own& link = own->second;
  arena_.free(link.side, sizeof(SideMemory));
  if (link.extension.memory != nullptr) arena_.free(link.extension, Extension::placed_bytes(link.turns));
  their_links_.erase(own->first);
  links_.erase(own);
}

void Pair::forget(std::uint64_t id) {
  const MutexLock lock(mutex_);
  receive_all();
  const auto theirs = their_links_.find(id);
  if (theirs == their_links_.end() || links_.contains(id) || theirs->second.answered) return;
  theirs->second.answered = true;
  send_in_order({PairMessageKind::kClose, Turns::kNone, id, 0});
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

void Pair::tidy() {
  const bool freed = memory::RegionRegistry::instance().generation() != generation_.load(std::memory_order_relaxed);
  if (!has_told() && !freed) [[likely]]
    return;
  const MutexLock lock(mutex_);
  forget_freed();
  // A failure shows itself when something is asked for that could not be received.
  receive_all();
}

Result<bool> PairLinkMemory::connect() {
  if (theirs_ != nullptr) return true;
  auto theirs = pair_->find_theirs(id_, turns());
  if (!theirs.is_ok()) return theirs.status();
  theirs_ = *theirs;
  return theirs_ != nullptr;
}

Result<Extension> PairLinkMemory::extend() {
  auto block = pair_->extend(id_);
  if (!block.is_ok()) return block.status();
  const std::size_t shift = shift_of(pair_->placing());
  own_.end.extension.store(block->offset + shift, std::memory_order_release);
  return Extension(block->memory + shift, turns());
}

Result<Extension> PairLinkMemory::peers_extension() {
  const std::uint64_t place = theirs_->end.extension.load(std::memory_order_acquire);
  if (place == 0 || place % kCacheLine != 0) {
    return Status::remote("protocol error: an extension that is not there");
  }
  auto memory = pair_->view(place, Extension::bytes(turns()));
  if (!memory.is_ok()) return memory.status();
  return Extension(*memory, turns());
}

}  // namespace tutti::internal::transport::shm
