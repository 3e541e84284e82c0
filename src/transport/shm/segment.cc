#include "transport/shm/segment.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <utility>

#include "base/memfd.h"

namespace tutti::internal::transport::shm {
namespace {

// Of AheadRooms in the memory, if it has them.
constexpr std::size_t kAheadOffset =
    (sizeof(SegmentMemory) + alignof(AheadRooms) - 1) / alignof(AheadRooms) * alignof(AheadRooms);

}  // namespace

bool cannot_shrink(const UniqueFd& fd) {
  const int seals = ::fcntl(fd.get(), F_GET_SEALS);
  return seals >= 0 && (seals & F_SEAL_SHRINK) != 0;
}

std::size_t Segment::bytes(Turns turns) {
  return turns == Turns::kNone ? sizeof(SegmentMemory) : kAheadOffset + sizeof(AheadRooms);
}

Segment::~Segment() {
  ::munmap(memory_, bytes(turns_));
}

Result<std::shared_ptr<Segment>> Segment::map_bytes(int fd, int flags, Turns turns) {
  void* p = ::mmap(nullptr, bytes(turns), PROT_READ | PROT_WRITE, flags, fd, 0);
  if (p == MAP_FAILED) return Status::system("mapping a shared-memory segment", errno);
  return std::shared_ptr<Segment>(new Segment(static_cast<SegmentMemory*>(p), turns));
}

Result<std::shared_ptr<Segment>> Segment::create_private(Turns turns) {
  return map_bytes(-1, MAP_PRIVATE | MAP_ANONYMOUS, turns);
}

Result<std::shared_ptr<Segment>> Segment::create_shared(UniqueFd* fd, Turns turns) {
  auto made = make_memfd("tutti-lane", bytes(turns));
  if (!made.is_ok()) return made.status();
  *fd = std::move(*made);
  return map(*fd, turns);
}

Result<std::shared_ptr<Segment>> Segment::map(const UniqueFd& fd, Turns turns) {
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return Status::system("inspecting a shared-memory segment", errno);
  if (static_cast<std::size_t>(info.st_size) != bytes(turns)) {
    return Status::remote(
        fmt::format("the peer's shared-memory segment has {} bytes, expected {}: do both sides run the same version?",
                    info.st_size, bytes(turns)));
  }
  if (!cannot_shrink(fd)) return Status::remote("protocol error: the peer's shared-memory segment is not sealed");
  return map_bytes(fd.get(), MAP_SHARED, turns);
}

AheadRooms& Segment::ahead() const {
  return *reinterpret_cast<AheadRooms*>(reinterpret_cast<std::byte*>(memory_) + kAheadOffset);
}

HeaderRing Segment::headers(int side) const {
  if (turns_ == Turns::kNone) return {&memory_->lane[side][0].header, kSlots, sizeof(Slot)};
  return {ahead().headers[side], kLinesAhead, sizeof(SlotHeader)};
}

PayloadRing Segment::slots(int side) const {
  return {memory_->lane[side][0].payload, turns_ == Turns::kNone ? kSlots : kSlotsInTurns, sizeof(Slot)};
}

PayloadRing Segment::shorts(int side) const {
  if (turns_ == Turns::kNone) return slots(side);
  return {ahead().shorts[side][0], kLinesAhead, kShortBytes};
}

}  // namespace tutti::internal::transport::shm
