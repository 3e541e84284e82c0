// The two sides of all links of a pair (pair.h): their blocks in this process's arena, and the positions of the peer's
// in its arena. A side is freed when both have closed the link: until then the peer may read it.
//
// Threads: one at a time, under the pair's lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>

#include "base/status.h"
#include "os/unique_fd.h"
#include "transport/shm/arena.h"
#include "transport/shm/layout.h"
#include "transport/shm/pair_channel.h"

namespace tutti::internal::transport::shm {

class PairLinks {
 public:
  // This side's arena; messages to the peer go through the channel.
  PairLinks(Arena arena, PairChannel& channel) : channel_(channel), arena_(std::move(arena)) {}
  [[nodiscard]] int arena_fd() const { return arena_.fd(); }

  // Memory for this side of the link `id`. The caller then sends PairMessageKind::kOpen to the peer.
  Result<Arena::Block> open(std::uint64_t id, Turns turns);
  // The position of its extension, which the first call makes. REQUIRES: it is open.
  Result<Arena::Block> extend(std::uint64_t id);
  // Ends this side. False if there is none.
  bool close(std::uint64_t id);
  // Frees this side if both are closed.
  void release_if_closed(std::uint64_t id);
  // This side opens no link with that number any more: answers a peer that has.
  void forget(std::uint64_t id);

  // The peer's side. Null: it has none yet. kRemoteError if it has different Turns.
  [[nodiscard]] Result<const SideMemory*> theirs(std::uint64_t id, Turns turns) const;
  // Memory of the peer's arena. REQUIRES: the arena has arrived.
  Result<const std::byte*> view(std::uint64_t offset, std::size_t bytes) { return view_->at(offset, bytes); }

  // Handle the peer's messages: its arena, whose first block is returned; its side of a link; the end of one.
  Result<const PairMemory*> apply_arena(const PairMessage& message, UniqueFd fd);
  Status apply_open(const PairMessage& message);
  void apply_close(std::uint64_t id);
  [[nodiscard]] bool has_their_arena() const { return view_.has_value(); }

 private:
  struct Theirs {
    const SideMemory* memory = nullptr;
    Turns turns = Turns::kNone;
    bool answered = false;  // by kClose, although this side never opened it
    Status failure;         // why this process cannot map `memory`
  };
  struct Own {
    Arena::Block side;
    Arena::Block extension;  // no memory: it has none
    Turns turns = Turns::kNone;
    bool closed = false;
    bool peer_closed = false;
  };
  PairChannel& channel_;
  Arena arena_;
  std::optional<ArenaView> view_;
  int peer_node_ = -1;  // the NUMA node that reads this side's data; -1: any
  std::map<std::uint64_t, Own> own_;
  std::map<std::uint64_t, Theirs> theirs_;
};

}  // namespace tutti::internal::transport::shm
