#include "transport/shm/private_memory.h"

#include <sys/mman.h>

#include <cerrno>
#include <utility>

#include "base/memfd.h"

namespace tutti::internal::transport::shm {
namespace {

class PrivateLinkMemory final : public LinkMemory {
 public:
  PrivateLinkMemory(std::shared_ptr<PrivateSegment> segment, int side)
      : LinkMemory(segment->turns()), segment_(std::move(segment)), side_(side) {}
  ~PrivateLinkMemory() override { own().end.closed.store(1, std::memory_order_release); }

  [[nodiscard]] SideMemory& own() const override { return segment_->side(side_); }
  [[nodiscard]] const SideMemory& theirs() const override { return segment_->side(1 - side_); }
  [[nodiscard]] Result<Extension> extend() override {
    own().end.extension.store(1, std::memory_order_release);
    return segment_->extension(side_);
  }
  [[nodiscard]] Result<Extension> peers_extension() override {
    if (theirs().end.extension.load(std::memory_order_acquire) != 0) return segment_->extension(1 - side_);
    return Status::remote("protocol error: an extension that is not there");
  }

 private:
  const std::shared_ptr<PrivateSegment> segment_;
  const int side_;
};

}  // namespace

Result<std::shared_ptr<PrivateSegment>> PrivateSegment::create(Turns turns) {
  void* const p =
      ::mmap(nullptr, bytes(turns), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) return map_error("mapping shared memory", errno);
  return std::shared_ptr<PrivateSegment>(new PrivateSegment(static_cast<std::byte*>(p), turns));
}

PrivateSegment::~PrivateSegment() {
  ::munmap(base_, bytes(turns_));
}

std::unique_ptr<LinkMemory> PrivateSegment::link_memory(int side) {
  return std::make_unique<PrivateLinkMemory>(shared_from_this(), side);
}

}  // namespace tutti::internal::transport::shm
