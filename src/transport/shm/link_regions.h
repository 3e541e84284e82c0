// The regions of a pair, for one of its links: remembers the last answers, so that threads that use other links of the
// pair do not contend.
//
// Threads: as the link (transport.h).
#pragma once

#include <cstdint>
#include <memory>

#include "base/status.h"
#include "memory/region.h"
#include "transport/shm/pair.h"

namespace tutti::internal::transport::shm {

class LinkRegions {
 public:
  LinkRegions() = default;
  explicit LinkRegions(Pair* pair) : pair_(pair) {}

  // Like Pair::announce().
  [[nodiscard]] bool announce(std::uint64_t region) {
    const std::uint64_t generation = memory::RegionRegistry::instance().generation();
    if (region == announced_ && generation == generation_) return true;
    if (!pair_->announce(region)) return false;
    announced_ = region;
    generation_ = generation;
    return true;
  }
  // The address of the peer's memory in this process.
  [[nodiscard]] Result<std::byte*> resolve(const ZcopyDescriptor& descriptor) {
    const std::uint32_t forgotten = pair_->forgotten();
    if (descriptor.region != mapped_number_ || forgotten != forgotten_ || mapped_ == nullptr) {
      auto mapped = pair_->region(descriptor.region);
      if (!mapped.is_ok()) return mapped.status();
      mapped_ = std::move(*mapped);
      mapped_number_ = descriptor.region;
      forgotten_ = forgotten;
    }
    return mapped_->at(descriptor);
  }
  // Before an operation, after Pair::tidy(): releases mappings of memory that the peer has freed.
  void tidy() {
    if (mapped_ != nullptr && pair_->forgotten() != forgotten_) mapped_.reset();
  }

 private:
  Pair* pair_ = nullptr;
  std::uint64_t announced_ = 0;  // a region's number is never 0
  std::uint64_t generation_ = 0;
  std::uint64_t mapped_number_ = 0;
  std::uint32_t forgotten_ = 0;
  std::shared_ptr<const MappedRegion> mapped_;
};

}  // namespace tutti::internal::transport::shm
