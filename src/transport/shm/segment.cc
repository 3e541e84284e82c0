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

Result<SegmentMemory*> map_bytes(int fd, int flags) {
  void* p = ::mmap(nullptr, sizeof(SegmentMemory), PROT_READ | PROT_WRITE, flags, fd, 0);
  if (p == MAP_FAILED) return Status::system("mapping a shared-memory segment", errno);
  return static_cast<SegmentMemory*>(p);
}

}  // namespace

bool cannot_shrink(const UniqueFd& fd) {
  const int seals = ::fcntl(fd.get(), F_GET_SEALS);
  return seals >= 0 && (seals & F_SEAL_SHRINK) != 0;
}

Segment::~Segment() {
  ::munmap(memory_, sizeof(SegmentMemory));
}

Result<std::shared_ptr<Segment>> Segment::create_private() {
  auto memory = map_bytes(-1, MAP_PRIVATE | MAP_ANONYMOUS);
  if (!memory.is_ok()) return memory.status();
  return std::shared_ptr<Segment>(new Segment(*memory));
}

Result<std::shared_ptr<Segment>> Segment::create_shared(UniqueFd* fd) {
  auto made = make_memfd("tutti-lane", sizeof(SegmentMemory));
  if (!made.is_ok()) return made.status();
  *fd = std::move(*made);
  return map(*fd);
}

Result<std::shared_ptr<Segment>> Segment::map(const UniqueFd& fd) {
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return Status::system("inspecting a shared-memory segment", errno);
  if (static_cast<std::size_t>(info.st_size) != sizeof(SegmentMemory)) {
    return Status::remote(
        fmt::format("the peer's shared-memory segment has {} bytes, expected {}: do both sides run the same version?",
                    info.st_size, sizeof(SegmentMemory)));
  }
  if (!cannot_shrink(fd)) return Status::remote("protocol error: the peer's shared-memory segment is not sealed");
  auto memory = map_bytes(fd.get(), MAP_SHARED);
  if (!memory.is_ok()) return memory.status();
  return std::shared_ptr<Segment>(new Segment(*memory));
}

}  // namespace tutti::internal::transport::shm
