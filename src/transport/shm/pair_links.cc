#include "transport/shm/pair_links.h"

#include <fmt/core.h>

#include <utility>

#include "os/numa.h"

namespace tutti::internal::transport::shm {
namespace {

const char* name_of(Turns turns) {
  return turns == Turns::kNone ? "processors of their own" : "turns on processors";
}

}  // namespace

Result<Arena::Block> PairLinks::open(std::uint64_t id, Turns turns) {
  if (own_.contains(id)) return Status::internal("a link is made a second time");
  auto block = arena_.allocate(sizeof(SideMemory));
  if (!block.is_ok()) return block.status();
  own_[id] = {*block, {}, turns, false, false};
  return block;
}

Result<Arena::Block> PairLinks::extend(std::uint64_t id) {
  Own& own = own_.at(id);
  if (own.extension.memory != nullptr) return own.extension;
  auto block = arena_.allocate(Extension::placed_bytes(own.turns));
  if (!block.is_ok()) return block;
  own.extension = *block;
  if (peer_node_ >= 0) prefer_node(block->memory, Extension::placed_bytes(own.turns), peer_node_);
  return block;
}

bool PairLinks::close(std::uint64_t id) {
  const auto own = own_.find(id);
  if (own == own_.end()) return false;
  own->second.closed = true;
  reinterpret_cast<SideMemory*>(own->second.side.memory)->end.closed.store(1, std::memory_order_release);
  channel_.send({PairMessageKind::kClose, Turns::kNone, id, 0});
  return true;
}

void PairLinks::release_if_closed(std::uint64_t id) {
  const auto own = own_.find(id);
  if (own == own_.end() || !own->second.closed || !own->second.peer_closed) return;
  const Own& link = own->second;
  arena_.free(link.side, sizeof(SideMemory));
  if (link.extension.memory != nullptr) arena_.free(link.extension, Extension::placed_bytes(link.turns));
  theirs_.erase(id);
  own_.erase(own);
}

void PairLinks::forget(std::uint64_t id) {
  const auto theirs = theirs_.find(id);
  if (theirs == theirs_.end() || own_.contains(id) || theirs->second.answered) return;
  theirs->second.answered = true;
  channel_.send({PairMessageKind::kClose, Turns::kNone, id, 0});
}

Result<const SideMemory*> PairLinks::theirs(std::uint64_t id, Turns turns) const {
  const auto at = theirs_.find(id);
  if (at == theirs_.end()) return nullptr;
  if (!at->second.failure.is_ok()) return at->second.failure;
  if (at->second.turns == turns) return at->second.memory;
  return Status::remote(fmt::format("the two sides do not agree on how ranks share processors: {} there, {} here",
                                    name_of(at->second.turns), name_of(turns)));
}

Result<const PairMemory*> PairLinks::apply_arena(const PairMessage& message, UniqueFd fd) {
  if (message.number > std::uint64_t{kMostNodes}) {
    return Status::remote("protocol error: a NUMA node that no machine has");
  }
  peer_node_ = static_cast<int>(message.number) - 1;
  if (!fd.valid() || view_) return Status::remote("protocol error: a second arena, or none");
  auto view = ArenaView::open(std::move(fd));
  if (!view.is_ok()) return view.status();
  view_.emplace(std::move(*view));
  auto first = view_->at(0, sizeof(PairMemory));
  if (!first.is_ok()) return first.status();
  return reinterpret_cast<const PairMemory*>(*first);
}

Status PairLinks::apply_open(const PairMessage& message) {
  if (!view_ || message.place % alignof(SideMemory) != 0 || theirs_.contains(message.number)) {
    return Status::remote("protocol error: an unexpected message about a link");
  }
  auto side = view_->at(message.place, sizeof(SideMemory));
  // If this process lacks memory or address space, only this link fails.
  if (!side.is_ok() && side.status().code() != Code::kSystemError) return side.status();
  const auto* const memory = side.is_ok() ? reinterpret_cast<const SideMemory*>(*side) : nullptr;
  theirs_[message.number] = {memory, message.turns, false, side.status()};
  return {};
}

// The peer no longer reads this side's memory, and waits for the same answer.
void PairLinks::apply_close(std::uint64_t id) {
  if (const auto own = own_.find(id); own != own_.end()) {
    own->second.peer_closed = true;
    release_if_closed(id);
    return;
  }
  const auto theirs = theirs_.find(id);
  if (theirs == theirs_.end()) return;
  const bool answered = theirs->second.answered;
  theirs_.erase(theirs);
  if (!answered) channel_.send({PairMessageKind::kClose, Turns::kNone, id, 0});
}

}  // namespace tutti::internal::transport::shm
