#include "device/channel.h"

#include <algorithm>
#include <utility>

#include "base/first_use.h"
#include "os/mutex.h"

namespace tutti::internal {
namespace {

using memory::PinnedMemory;

struct SpareChannels {
  Mutex mutex;
  std::vector<DeviceChannel*> channels TUTTI_GUARDED_BY(mutex);
  // Words for new channels.
  PinnedMemory::Block words TUTTI_GUARDED_BY(mutex);
};
SpareChannels& spare() {
  static constinit FirstUse<SpareChannels> all;
  return all.get();
}

}  // namespace

Result<DeviceChannel*> DeviceChannel::take(const memory::CudaDevice& device) {
  {
    const MutexLock lock(spare().mutex);
    auto& channels = spare().channels;
    // Searches from the last one: its slots have memory.
    const auto found = std::find_if(channels.rbegin(), channels.rend(), [](const auto* c) { return c->quiet(); });
    if (found != channels.rend()) {
      DeviceChannel* const channel = *found;
      channels.erase(std::next(found).base());
      return channel;
    }
  }
  auto words = take_words(device);
  if (!words.is_ok()) return words.status();
  return new DeviceChannel(*words);
}

Result<std::uint32_t*> DeviceChannel::take_words(const memory::CudaDevice& device) {
  constexpr std::size_t kBytes = 3 * kWordStride * sizeof(std::uint32_t);
  PinnedMemory::Block& words = spare().words;
  const auto enough = [&] {
    const MutexLock lock(spare().mutex);
    return words.bytes >= kBytes;
  };
  if (!enough()) {
    // Not under the lock: destructors of graphs may need it while a thread waits in the driver.
    auto block = PinnedMemory::instance().take(kBytes, device);
    if (!block.is_ok()) return block.status();
    std::fill_n(block->memory, block->bytes, std::byte{0});
    const MutexLock lock(spare().mutex);
    words = *block;  // if another thread has stored a block meanwhile, that one is lost
  }
  const MutexLock lock(spare().mutex);
  auto* const taken = reinterpret_cast<std::uint32_t*>(words.memory);
  words.memory += kBytes;
  words.bytes -= kBytes;
  return taken;
}

// If memory to record it is missing, the channel is lost.
void DeviceChannel::give_back() noexcept {
  if (std::exchange(captured_, false)) {
    count_ = 0;
    for (const Word which : {Word::kEntered, Word::kRun, Word::kReturned}) store(which, 0);
  }
  (void)guarded([&] {
    const MutexLock lock(spare().mutex);
    spare().channels.push_back(this);
    return Status();
  });
}

Status DeviceChannel::reserve(std::size_t number, std::size_t bytes, const memory::CudaDevice& device) {
  PinnedMemory::Block& slot = slots_[number];
  if (bytes <= slot.bytes) return {};
  if (quiet()) {
    for (const PinnedMemory::Block& block : std::exchange(retired_, {})) PinnedMemory::instance().give_back(block);
  }
  auto more = PinnedMemory::instance().take(bytes, device);
  if (!more.is_ok()) return more.status();
  if (quiet()) {
    PinnedMemory::instance().give_back(slot);
  } else if (slot.memory != nullptr) {
    retired_.push_back(slot);
  }
  slot = *more;
  return {};
}

}  // namespace tutti::internal
