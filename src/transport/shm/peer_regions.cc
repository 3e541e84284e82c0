#include "transport/shm/peer_regions.h"

#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "memory/region.h"
#include "transport/shm/fd_message.h"

namespace tutti::internal::transport::shm {
namespace {

constexpr std::uint32_t kAnnounce = 1;  // carries the region's descriptor
constexpr std::uint32_t kForget = 2;    // the region is gone

}  // namespace

PeerRegions::~PeerRegions() {
  for (const auto& [id, m] : mapped_) ::munmap(m.base, m.bytes);
}

bool PeerRegions::send(const Message& message, int fd) {
  if (!send_with_fd(socket_.get(), &message, sizeof message, fd)) return false;
  sent_.fetch_add(1, std::memory_order_release);
  return true;
}

void PeerRegions::forget_freed() {
  const auto& registry = memory::RegionRegistry::instance();
  const std::uint64_t now = registry.generation();
  if (now == generation_) return;
  generation_ = now;
  for (auto it = announced_.begin(); it != announced_.end();) {
    if (registry.exists(*it)) {
      ++it;
      continue;
    }
    // If the socket is full the peer keeps a stale mapping until the link ends: memory, not correctness.
    (void)send({kForget, 0, *it, 0}, -1);
    it = announced_.erase(it);
  }
}

bool PeerRegions::announce(std::uint64_t region) {
  forget_freed();
  if (announced_.contains(region)) return true;
  std::size_t bytes = 0;
  const UniqueFd fd = memory::RegionRegistry::instance().duplicate_fd(region, &bytes);
  if (!fd.valid() || !send({kAnnounce, 0, region, bytes}, fd.get())) return false;
  announced_.insert(region);
  return true;
}

Status PeerRegions::apply(const Message& message, UniqueFd fd) {
  if (message.kind == kForget) {
    const auto it = mapped_.find(message.region);
    if (it == mapped_.end()) return {};
    ::munmap(it->second.base, it->second.bytes);
    mapped_.erase(it);
    if (last_region_ == message.region) {
      last_region_ = 0;
      last_mapping_ = {};
    }
    return {};
  }
  struct stat info {};
  if (message.kind != kAnnounce || message.region == 0 || !fd.valid() || ::fstat(fd.get(), &info) != 0 ||
      static_cast<std::uint64_t>(info.st_size) < message.bytes || !cannot_shrink(fd) ||
      mapped_.contains(message.region)) {
    return Status::remote("protocol error: an unexpected message about a region");
  }
  void* p = ::mmap(nullptr, message.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (p == MAP_FAILED) return Status::system("mapping the peer's memory", errno);
  mapped_[message.region] = {static_cast<std::byte*>(p), message.bytes};
  return {};
}

// A message that fails is over: its region is lost, and what follows is received all the same.
void PeerRegions::receive_all() {
  const auto note = [this](Status failed) {
    if (failure_.is_ok()) failure_ = std::move(failed);
  };
  for (;;) {
    Message message{};
    UniqueFd fd;
    const ssize_t n = receive_with_fd(socket_.get(), &message, sizeof message, &fd);
    const int error = n < 0 ? errno : 0;
    if (error == EAGAIN || error == EWOULDBLOCK) return;
    if (error != 0 && error != ECONNRESET) {
      note(Status::system("receiving the peer's memory", error));
      if (error != EMFILE) return;
      ++received_;  // the message came, its descriptor did not
      continue;
    }
    if (n != static_cast<ssize_t>(sizeof message))
      return note(Status::remote("the peer closed the socket over which it announces regions"));
    ++received_;
    if (Status s = apply(message, std::move(fd)); !s.is_ok()) note(std::move(s));
  }
}

void PeerRegions::tidy() {
  forget_freed();
  // A failure shows itself when a region is resolved that could not be received.
  if (peer_sent_.load(std::memory_order_acquire) != received_) receive_all();
}

Result<std::byte*> PeerRegions::resolve(const ZcopyDescriptor& descriptor) {
  if (descriptor.region != last_region_ || descriptor.region == 0) {
    auto it = mapped_.find(descriptor.region);
    if (it == mapped_.end()) {
      // The region was announced on the socket before the descriptor was published.
      receive_all();
      it = mapped_.find(descriptor.region);
      if (it == mapped_.end()) {
        return failure_.is_ok() ? Status::remote("protocol error: a descriptor of a region that was not announced")
                                : failure_;
      }
    }
    last_region_ = descriptor.region;
    last_mapping_ = it->second;
  }
  if (descriptor.offset > last_mapping_.bytes || descriptor.bytes > last_mapping_.bytes - descriptor.offset) {
    return Status::remote("protocol error: a descriptor of memory outside its region");
  }
  return last_mapping_.base + descriptor.offset;
}

}  // namespace tutti::internal::transport::shm
