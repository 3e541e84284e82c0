// What two ranks that are processes of one machine have in common, once for all communicators that both are in: a Unix
// socket, the wakeup fds, and an arena of each side in which the links of the two lie.
//
// Making it waits for nobody: each side sends what the other needs, and hears of the rest when it comes. So it is with
// links: a side takes its part of one, says where it is, and looks whether the other has done so. What one side has
// taken for a link it takes back when both have ended theirs.
//
// The pair also knows the regions (tuttiMemAlloc) of the peer as mapped here, and those of this process as announced to
// the peer: what turns a ZcopyDescriptor into an address. And it knows whether the two can read each other's memory.
//
// Threads: any.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/status.h"
#include "os/mutex.h"
#include "os/unique_fd.h"
#include "transport/shm/arena.h"
#include "transport/shm/cross_memory.h"
#include "transport/shm/layout.h"
#include "transport/shm/pair_messages.h"
#include "transport/wakeup_fd.h"

namespace tutti::internal::transport::shm {

// A region of the peer's, mapped as long as somebody uses it.
class MappedRegion {
 public:
  MappedRegion(std::byte* base, std::size_t bytes) : base_(base), bytes_(bytes) {}
  MappedRegion(const MappedRegion&) = delete;
  MappedRegion& operator=(const MappedRegion&) = delete;
  ~MappedRegion();
  // kRemoteError if that is not inside it.
  [[nodiscard]] Result<std::byte*> at(const ZcopyDescriptor& descriptor) const;

 private:
  std::byte* const base_;
  const std::size_t bytes_;
};

class PairLinkMemory;

class Pair : public std::enable_shared_from_this<Pair> {
 public:
  // This side.
  struct Self {
    int rank = 0;                       // by which the peer's processor tells many apart (Arena::spread)
    Placing placing = Placing::kFirst;  // of its extensions; the peer says the other
    // The NUMA node on whose processors alone it runs: there lie the slots that the peer fills, and what of this side
    // is short. -1: none.
    int node = -1;
  };
  // `socket`: authenticated, connected and non-blocking. `peer`: its rank, for messages.
  static Result<std::shared_ptr<Pair>> create(UniqueFd socket, const WakeupFd& wakeup_fd, int peer, const Self& self);
  ~Pair();
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;

  // This side of the link `id`. REQUIRES: it has none of that number, nor had one.
  Result<std::unique_ptr<PairLinkMemory>> open(std::uint64_t id, Turns turns) TUTTI_EXCLUDES(mutex_);
  // There will be no link of that number any more, whether there has been one or not.
  void forget(std::uint64_t id) TUTTI_EXCLUDES(mutex_);

  // Makes sure that the peer can map `region` of this process. False if it cannot be (the region is
  // gone, or the socket does not take the message now): then the caller copies instead.
  bool announce(std::uint64_t region) TUTTI_EXCLUDES(mutex_);
  // The peer's. Maps it if it is new.
  Result<std::shared_ptr<const MappedRegion>> region(std::uint64_t number) TUTTI_EXCLUDES(mutex_);
  // Tells the peer of regions that are gone, and hears what it has told. Now and then, or memory that has been
  // freed is kept by mappings and by descriptors that nobody has received. Cheap if there is nothing to do.
  void tidy() TUTTI_EXCLUDES(mutex_);
  // Changes when the peer has told of a region that is gone.
  [[nodiscard]] std::uint32_t forgotten() const { return forgotten_.load(std::memory_order_acquire); }

  [[nodiscard]] Placing placing() const { return placing_; }

  // Of this side. Nothing is read until the peer has permitted that, too.
  [[nodiscard]] CrossMemory& cross_memory() { return cross_memory_; }
  void offer_cross_memory(bool permits) TUTTI_EXCLUDES(mutex_);
  void probe_cross_memory() TUTTI_EXCLUDES(mutex_);

  // False: no more links can be made. The peer sees that, too.
  [[nodiscard]] bool is_usable() TUTTI_EXCLUDES(mutex_);
  // Closed by the peer when it ends.
  [[nodiscard]] int socket() const { return socket_.get(); }
  // What this side writes.
  [[nodiscard]] PairMemory& memory() { return own_; }
  // -1: not heard of yet.
  [[nodiscard]] int peer_wakeup_fd() const { return peer_wakeup_number_.load(std::memory_order_acquire); }

 private:
  friend class PairLinkMemory;
  // The peer's side of a link.
  struct Theirs {
    const SideMemory* memory = nullptr;
    Turns turns = Turns::kNone;
    bool answered = false;  // by kClose, though this side has had none
  };
  // This side of one.
  struct Own {
    Arena::Block side;
    Arena::Block extension;  // none: no memory
    Turns turns = Turns::kNone;
    bool closed = false;
    bool peer_closed = false;
  };
  struct Unsent {
    PairMessage message;
    int fd;  // that it carries, which lives as long as the pair; -1: none
  };
  Pair(UniqueFd socket, Arena arena, PairMemory* own, const WakeupFd& wakeup_fd, int peer, Placing placing);
  // False: not now, or never (failure_).
  bool send(const PairMessage& message, int fd = -1) TUTTI_REQUIRES(mutex_);
  // The same; at the next occasion if the socket is full, or as many descriptors are under way as the kernel allows.
  void send_in_order(const PairMessage& message, int fd = -1) TUTTI_REQUIRES(mutex_);
  void send_rest() TUTTI_REQUIRES(mutex_);
  // Of its side of a link that is open.
  [[nodiscard]] bool has_told_of(std::uint64_t id) const TUTTI_REQUIRES(mutex_);
  void forget_freed() TUTTI_REQUIRES(mutex_);
  void receive_all() TUTTI_REQUIRES(mutex_);
  void look() TUTTI_REQUIRES(mutex_);
  // Whether the peer has told anything that has not been received.
  [[nodiscard]] bool has_told() const;
  void note(Status failed, bool of_region) TUTTI_REQUIRES(mutex_);
  Status apply(const PairMessage& message, UniqueFd fd) TUTTI_REQUIRES(mutex_);
  Status apply_arena(const PairMessage& message, UniqueFd fd) TUTTI_REQUIRES(mutex_);
  Status apply_open(const PairMessage& message) TUTTI_REQUIRES(mutex_);
  void apply_close(std::uint64_t id) TUTTI_REQUIRES(mutex_);
  Status apply_region(const PairMessage& message, UniqueFd fd) TUTTI_REQUIRES(mutex_);
  void release(std::map<std::uint64_t, Own>::iterator own) TUTTI_REQUIRES(mutex_);

  // For PairLinkMemory. Null: the peer has not opened its side yet, or has not heard of this one.
  Result<const SideMemory*> find_theirs(std::uint64_t id, Turns turns) TUTTI_EXCLUDES(mutex_);
  Result<Arena::Block> extend(std::uint64_t id) TUTTI_EXCLUDES(mutex_);
  Result<const std::byte*> view(std::uint64_t offset, std::size_t bytes) TUTTI_EXCLUDES(mutex_);
  void close(std::uint64_t id) noexcept TUTTI_EXCLUDES(mutex_);

  const UniqueFd socket_;
  const WakeupFd wakeup_fd_;
  const int peer_;
  const Placing placing_;
  PairMemory& own_;  // in the arena
  Mutex mutex_;
  Arena arena_ TUTTI_GUARDED_BY(mutex_);
  std::optional<ArenaView> view_ TUTTI_GUARDED_BY(mutex_);
  int peer_node_ TUTTI_GUARDED_BY(mutex_) = -1;
  std::atomic<const PairMemory*> theirs_{nullptr};
  UniqueFd peer_wakeup_fd_ TUTTI_GUARDED_BY(mutex_);
  std::atomic<int> peer_wakeup_number_{-1};
  bool rings_later_ TUTTI_GUARDED_BY(mutex_) = false;  // once it has the peer's wakeup fd
  CrossMemory cross_memory_;

  std::atomic<std::uint32_t> received_{0};  // messages
  std::int64_t looked_ns_ TUTTI_GUARDED_BY(mutex_) = 0;
  // The first failure to receive something: without which no link can be made, or of a region alone.
  Status failure_ TUTTI_GUARDED_BY(mutex_);
  Status region_failure_ TUTTI_GUARDED_BY(mutex_);
  std::vector<Unsent> unsent_ TUTTI_GUARDED_BY(mutex_);  // in their order
  std::map<std::uint64_t, Own> links_ TUTTI_GUARDED_BY(mutex_);
  std::map<std::uint64_t, Theirs> their_links_ TUTTI_GUARDED_BY(mutex_);

  std::map<std::uint64_t, std::shared_ptr<const MappedRegion>> mapped_ TUTTI_GUARDED_BY(mutex_);
  std::set<std::uint64_t> announced_ TUTTI_GUARDED_BY(mutex_);
  std::atomic<std::uint64_t> generation_{0};  // of the registry, when forget_freed() last looked
  std::atomic<std::uint32_t> forgotten_{0};
};

// A link's memory in the arenas of a pair. It may be used once connect() has said that it can.
class PairLinkMemory final : public LinkMemory {
 public:
  PairLinkMemory(std::shared_ptr<Pair> pair, std::uint64_t id, Turns turns, SideMemory& own)
      : LinkMemory(turns), pair_(std::move(pair)), id_(id), own_(own) {}
  ~PairLinkMemory() override { pair_->close(id_); }

  // False: the peer has not opened its side yet. kRemoteError if the two differ in their turns, or the peer has sent
  // something impossible, or ended.
  Result<bool> connect();
  [[nodiscard]] const std::shared_ptr<Pair>& pair() const { return pair_; }

  [[nodiscard]] SideMemory& own() const override { return own_; }
  [[nodiscard]] const SideMemory& theirs() const override { return *theirs_; }
  [[nodiscard]] Result<Extension> extend() override;
  [[nodiscard]] Result<Extension> peers_extension() override;

 private:
  const std::shared_ptr<Pair> pair_;
  const std::uint64_t id_;
  SideMemory& own_;
  const SideMemory* theirs_ = nullptr;
};

}  // namespace tutti::internal::transport::shm
