#include "transport/shm/pair_link_memory.h"

#include <cstddef>

namespace tutti::internal::transport::shm {

Result<bool> PairLinkMemory::connect() {
  if (theirs_ != nullptr) return true;
  auto theirs = pair_->connect(id_, turns());
  if (!theirs.is_ok()) return theirs.status();
  theirs_ = *theirs;
  return theirs_ != nullptr;
}

Result<Extension> PairLinkMemory::extend() {
  auto block = pair_->extend(id_);
  if (!block.is_ok()) return block.status();
  const std::size_t shift = shift_of(pair_->placing());
  own_->end.extension.store(block->offset + shift, std::memory_order_release);
  return Extension(block->memory + shift, turns());
}

Result<Extension> PairLinkMemory::peers_extension() {
  const std::uint64_t offset = theirs_->end.extension.load(std::memory_order_acquire);
  if (offset == 0 || offset % kCacheLine != 0) {
    return Status::remote("protocol error: an extension that is not there");
  }
  auto memory = pair_->view(offset, Extension::bytes(turns()));
  if (!memory.is_ok()) return memory.status();
  return Extension(*memory, turns());
}

}  // namespace tutti::internal::transport::shm
