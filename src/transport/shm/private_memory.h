// The memory of a link between two threads of one process.
//
// Threads: a segment any; the result of link_memory(), as the link.
#pragma once

#include <memory>

#include "base/status.h"
#include "transport/shm/layout.h"

namespace tutti::internal::transport::shm {

// Unmapped with its last owner. The system allocates no memory for untouched pages.
class PrivateSegment : public std::enable_shared_from_this<PrivateSegment> {
 public:
  static Result<std::shared_ptr<PrivateSegment>> create(Turns turns);
  ~PrivateSegment();
  PrivateSegment(const PrivateSegment&) = delete;
  PrivateSegment& operator=(const PrivateSegment&) = delete;

  [[nodiscard]] SideMemory& side(int side) const {
    return *reinterpret_cast<SideMemory*>(base_ + side * kSideBytes + shift_of(placing_of(side)));
  }
  [[nodiscard]] Extension extension(int side) const {
    return {base_ + 2 * kSideBytes + side * Extension::placed_bytes(turns_) + shift_of(placing_of(side)), turns_};
  }
  [[nodiscard]] Turns turns() const { return turns_; }
  // `side`: 0 or 1.
  std::unique_ptr<LinkMemory> link_memory(int side);

 private:
  static constexpr std::size_t kSideBytes = 4096;
  static_assert(sizeof(SideMemory) + kPlacingBytes <= kSideBytes);
  static constexpr Placing placing_of(int side) { return side == 0 ? Placing::kFirst : Placing::kSecond; }
  PrivateSegment(std::byte* base, Turns turns) : base_(base), turns_(turns) {}
  [[nodiscard]] static std::size_t bytes(Turns turns) { return 2 * (kSideBytes + Extension::placed_bytes(turns)); }
  std::byte* const base_;
  const Turns turns_;
};

}  // namespace tutti::internal::transport::shm
