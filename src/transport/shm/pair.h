// The shared state of two ranks that are processes of one machine, once for all communicators with both: a Unix socket
// and the wakeup fds (PairChannel), an arena of each side that contains the links of the two (PairLinks), and the
// regions that they have announced to each other (PairRegions). It also knows whether the two can read each other's
// memory (CrossMemory).
//
// Creating it waits for no peer: each side sends what the other needs, and receives the rest when it arrives. Links
// work in the same way: a side allocates its part of one, sends its position, and checks whether the other has done so.
// A side frees its memory of a link when both have ended theirs.
//
// Threads: any. One lock guards all parts; values that are read without it are atomic and are members of this class.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/status.h"
#include "os/mutex.h"
#include "os/unique_fd.h"
#include "transport/shm/arena.h"
#include "transport/shm/cross_memory.h"
#include "transport/shm/layout.h"
#include "transport/shm/pair_channel.h"
#include "transport/shm/pair_links.h"
#include "transport/shm/pair_messages.h"
#include "transport/shm/pair_regions.h"
#include "transport/wakeup_fd.h"

namespace tutti::internal::transport::shm {

class PairLinkMemory;

class Pair : public std::enable_shared_from_this<Pair> {
 public:
  // Values of this side.
  struct Self {
    int rank = 0;                       // by which the peer's processor distinguishes many ranks (Arena::spread)
    Placing placing = Placing::kFirst;  // of its extensions; the peer uses the other
    // The only NUMA node on whose processors it runs: there are the slots that the peer fills, and the short blocks of
    // this side. -1: there is none.
    int node = -1;
  };
  // `socket`: authenticated, connected and non-blocking. `peer`: its rank, for messages.
  static Result<std::shared_ptr<Pair>> create(UniqueFd socket, const WakeupFd& wakeup_fd, int peer, const Self& self);
  ~Pair();
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;

  // Opens this side of the link `id`. REQUIRES: it has never had a link with that number.
  Result<std::unique_ptr<PairLinkMemory>> open(std::uint64_t id, Turns turns) TUTTI_EXCLUDES(mutex_);
  // There will be no link with that number any more, whether there has been one or not.
  void forget(std::uint64_t id) TUTTI_EXCLUDES(mutex_);

  // For PairLinkMemory, of the link `id` that open() has made. connect(): the peer's side, null while it has not opened
  // it, or has not heard of this one. extend(): this side's extension. view(): memory of the peer's arena. close():
  // ends this side.
  Result<const SideMemory*> connect(std::uint64_t id, Turns turns) TUTTI_EXCLUDES(mutex_);
  Result<Arena::Block> extend(std::uint64_t id) TUTTI_EXCLUDES(mutex_);
  Result<const std::byte*> view(std::uint64_t offset, std::size_t bytes) TUTTI_EXCLUDES(mutex_);
  void close(std::uint64_t id) noexcept TUTTI_EXCLUDES(mutex_);
  [[nodiscard]] Placing placing() const { return placing_; }

  // Makes sure that the peer can map `region` of this process. False if that is not possible (the region is gone, or
  // the socket does not accept the message now): then the caller copies instead.
  bool announce(std::uint64_t region) TUTTI_EXCLUDES(mutex_);
  // A region of the peer. Maps it if it is new.
  Result<std::shared_ptr<const MappedRegion>> region(std::uint64_t number) TUTTI_EXCLUDES(mutex_);
  // Tells the peer about regions that are gone, and receives its messages. Must be called now and then; otherwise
  // mappings and unreceived descriptors keep freed memory. Cheap if there is nothing to do.
  void tidy() TUTTI_EXCLUDES(mutex_);
  // Changes when the peer has reported that a region is gone.
  [[nodiscard]] std::uint32_t forgotten() const { return forgotten_.load(std::memory_order_acquire); }

  // Of this side. Nothing is read until the peer has offered its memory as well.
  [[nodiscard]] CrossMemory& cross_memory() { return cross_memory_; }
  void offer_cross_memory(bool permits) TUTTI_EXCLUDES(mutex_);
  void probe_cross_memory() TUTTI_EXCLUDES(mutex_);

  // False: no more links can be made. The peer notices it too.
  [[nodiscard]] bool is_usable() TUTTI_EXCLUDES(mutex_);
  // Closed by the peer when it ends.
  [[nodiscard]] int socket() const { return socket_.get(); }
  // The part that this side writes.
  [[nodiscard]] PairMemory& memory() { return own_; }
  // -1: not received yet.
  [[nodiscard]] int peer_wakeup_fd() const { return peer_wakeup_fd_.load(std::memory_order_acquire); }

 private:
  Pair(UniqueFd socket, Arena arena, PairMemory* own, const WakeupFd& wakeup_fd, int peer, Placing placing);
  void receive_all() TUTTI_REQUIRES(mutex_);
  // The same, if a message may have arrived.
  void look() TUTTI_REQUIRES(mutex_);
  // Whether the peer has sent a message that has not been received.
  [[nodiscard]] bool has_told() const;
  Status apply(const PairMessage& message, UniqueFd fd) TUTTI_REQUIRES(mutex_);
  void forget_freed() TUTTI_REQUIRES(mutex_);

  const UniqueFd socket_;
  const WakeupFd wakeup_fd_;  // PairChannel sends its descriptor, at once or later
  const Placing placing_;
  PairMemory& own_;  // in the arena
  std::atomic<const PairMemory*> theirs_{nullptr};
  std::atomic<int> peer_wakeup_fd_{-1};
  std::atomic<std::uint32_t> received_{0};    // messages
  std::atomic<std::uint64_t> generation_{0};  // of the registry, when forget_freed() last looked
  std::atomic<std::uint32_t> forgotten_{0};
  CrossMemory cross_memory_;

  Mutex mutex_;
  PairChannel channel_ TUTTI_GUARDED_BY(mutex_);
  PairLinks links_ TUTTI_GUARDED_BY(mutex_);
  PairRegions regions_ TUTTI_GUARDED_BY(mutex_);
  std::int64_t looked_ns_ TUTTI_GUARDED_BY(mutex_) = 0;
};

}  // namespace tutti::internal::transport::shm
