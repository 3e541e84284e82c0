// The regions (tuttiMemAlloc) of a pair (pair.h): the peer's, as mapped here, and this process's, as announced to the
// peer. Translates a ZcopyDescriptor to an address.
//
// Threads: one at a time, under the pair's lock; a MappedRegion any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "base/status.h"
#include "os/unique_fd.h"
#include "transport/shm/layout.h"
#include "transport/shm/pair_channel.h"

namespace tutti::internal::transport::shm {

// A region of the peer, mapped as long as it has an owner.
class MappedRegion {
 public:
  MappedRegion(std::byte* base, std::size_t bytes) : base_(base), bytes_(bytes) {}
  MappedRegion(const MappedRegion&) = delete;
  MappedRegion& operator=(const MappedRegion&) = delete;
  ~MappedRegion();
  // kRemoteError if the described memory is not inside it.
  [[nodiscard]] Result<std::byte*> at(const ZcopyDescriptor& descriptor) const;

 private:
  std::byte* const base_;
  const std::size_t bytes_;
};

class PairRegions {
 public:
  // Messages to the peer go through the channel.
  explicit PairRegions(PairChannel& channel) : channel_(channel) {}

  // Tells the peer about a region of this process. False if the peer cannot map it: see Pair::announce().
  bool announce(std::uint64_t region);
  // Tells the peer which regions are gone.
  void forget_freed();

  // Handles a message of the peer about one of its regions.
  Status apply(const PairMessage& message, UniqueFd fd);
  // A region of the peer, as mapped here. Null: not announced, or gone.
  [[nodiscard]] std::shared_ptr<const MappedRegion> find(std::uint64_t number) const;
  // A region of the peer could not be received; which one is not known. The first failure is kept.
  void fail(Status status) {
    if (failure_.is_ok()) failure_ = std::move(status);
  }
  [[nodiscard]] const Status& failure() const { return failure_; }

 private:
  PairChannel& channel_;
  std::map<std::uint64_t, std::shared_ptr<const MappedRegion>> mapped_;
  std::set<std::uint64_t> announced_;
  Status failure_;
};

}  // namespace tutti::internal::transport::shm
