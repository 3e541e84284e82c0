// One attempt of a collective in survivor mode: the parts of the caller's buffers that the ranks that live use.
#include <algorithm>

#include "base/collectives.h"
#include "base/copy.h"
#include "communicator/communicator.h"
#include "communicator/survivor_mode.h"

namespace tutti::internal {

// Runs the call on the ranks that live.
Status SurvivorMode::attempt(const Call& call) {
  Call inner = call;
  inner.root = has_root(call.collective) ? index_of(call.root) : 0;
  input_.exists = output_.exists = false;
  if (has_data(call.collective)) {
    const CollectiveInfo& info = info_of(call.collective);
    lay_out(&input_, info.input, call, call.varying != nullptr ? &call.varying->send : nullptr, inner.root);
    lay_out(&output_, info.output, call, call.varying != nullptr ? &call.varying->recv : nullptr, inner.root);
  }
  counts_ = {};
  if (call.varying != nullptr) inner.varying = &counts_;
  if (input_.exists && input_.has_blocks) counts_.send = {input_.counts.data(), nullptr};
  if (input_.exists && input_.has_blocks && (!is_complete() || call.varying != nullptr)) {
    if (Status s = pack(&input_, call.send); !s.is_ok()) return living_->fail(name_of(call.collective), s);
    inner.send = input_.memory.memory();
  }
  if (output_.exists) {
    if (output_.has_blocks) counts_.recv = {output_.counts.data(), nullptr};
    if (Status s = output_.memory.grow(std::max<std::size_t>(output_.bytes, 1)); !s.is_ok()) {
      return living_->fail(name_of(call.collective), s);
    }
    inner.recv = output_.memory.memory();
  }
  return living_->run(inner);
}

// `root`: its rank among the living ones.
void SurvivorMode::lay_out(Side* side, Holds holds, const Call& call, const BlockCounts* blocks, int root) const {
  side->exists = has_any(holds, living_->rank(), root);
  side->has_blocks = holds != Holds::kOwnBlock && has_blocks(call.collective);
  side->parts.clear();
  side->counts.clear();
  side->bytes = 0;
  if (!side->exists) return;
  const std::size_t element_bytes = element_bytes_of(call);
  const auto add = [&](std::size_t begin, std::size_t count) {
    side->parts.push_back({begin * element_bytes, count * element_bytes});
    side->counts.push_back(count);
    side->bytes += count * element_bytes;
  };
  if (!side->has_blocks) {
    // The output of a reduce-scatter: its counts are those of the input.
    const bool counted = call.collective == Collective::kReduceScatterV;
    return add(0, counted ? call.varying->send.counts[rank()] : call.count);
  }
  std::size_t packed = 0;
  auto member = members_->begin();
  for (std::size_t rank = 0; member != members_->end(); ++rank) {
    const std::size_t count = blocks != nullptr ? blocks->counts[rank] : call.count;
    const bool placed = blocks != nullptr && blocks->displacements != nullptr;
    if (static_cast<int>(rank) == *member) {
      add(placed ? blocks->displacements[rank] : packed, count);
      ++member;
    }
    packed += count;
  }
}

Status SurvivorMode::pack(Side* side, const void* buffer) {
  if (Status s = side->memory.grow(std::max<std::size_t>(side->bytes, 1)); !s.is_ok()) return s;
  std::byte* to = side->memory.memory();
  for (const Part& part : side->parts) {
    if (part.bytes != 0) copy_bytes(to, static_cast<const std::byte*>(buffer) + part.begin, part.bytes);
    to += part.bytes;
  }
  return {};
}

void SurvivorMode::unpack(const Side& side, void* buffer) {
  const std::byte* from = side.memory.memory();
  for (const Part& part : side.parts) {
    if (part.bytes != 0) copy_bytes(static_cast<std::byte*>(buffer) + part.begin, from, part.bytes);
    from += part.bytes;
  }
}

}  // namespace tutti::internal
