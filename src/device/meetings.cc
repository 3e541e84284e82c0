#include "device/meetings.h"

#include <algorithm>
#include <map>
#include <new>
#include <tuple>
#include <utility>
#include <vector>

#include "base/first_use.h"
#include "memory/pinned_memory.h"
#include "os/mutex.h"

namespace tutti::internal {
namespace {

using memory::CudaDevice;

// What all communicators of the process have of a device.
struct DeviceShare {
  unsigned blocks = 0;  // that may wait for others
  std::vector<std::pair<DirectMailbox*, DirectControl*>> spare;
};
struct Shares {
  Mutex mutex;
  std::map<const CudaDevice*, DeviceShare> of TUTTI_GUARDED_BY(mutex);
};
Shares& shares() {
  static constinit FirstUse<Shares> all;
  return all.get();
}

}  // namespace

// Each takes half of what is left, so that many can.
Result<std::shared_ptr<DirectMeetings>> DirectMeetings::make(int ranks, const DirectKernels& kernels,
                                                             const CudaDevice& device) {
  std::shared_ptr<DirectMeetings> made(new DirectMeetings(ranks, device));
  unsigned columns = 0;
  {
    const MutexLock lock(shares().mutex);
    unsigned& taken = shares().of[&device].blocks;
    const unsigned most = kernels.most_resident_blocks();
    columns = std::min(kMostDirectBlocks, (most - std::min(most, taken)) / 2 / static_cast<unsigned>(ranks));
    if (columns == 0) return std::shared_ptr<DirectMeetings>();
    taken += columns * static_cast<unsigned>(ranks);
    made->columns_ = columns;  // its destructor gives them back
  }
  auto taken = take_memory(device);
  if (!taken.is_ok()) return taken.status();
  made->memory_ = *taken;
  return made;
}

Result<DirectMeetings::Memory> DirectMeetings::take_memory(const CudaDevice& device) {
  constexpr std::size_t kBytes = sizeof(DirectMailbox) * kMostDirectRanks;
  Memory memory;
  {
    const MutexLock lock(shares().mutex);
    auto& spare = shares().of[&device].spare;
    if (!spare.empty()) {
      std::tie(memory.mailboxes, memory.control) = spare.back();
      spare.pop_back();
    }
  }
  if (memory.mailboxes != nullptr) {
    if (Status s = device.zero(reinterpret_cast<std::byte*>(memory.mailboxes), kBytes); !s.is_ok()) return s;
  } else {
    auto mailboxes = device.take_zeroed(kBytes);
    if (!mailboxes.is_ok()) return mailboxes.status();
    memory.mailboxes = reinterpret_cast<DirectMailbox*>(*mailboxes);
    auto control = memory::PinnedMemory::instance().take(sizeof(DirectControl), device);
    if (!control.is_ok()) return control.status();
    memory.control = reinterpret_cast<DirectControl*>(control->memory);
  }
  new (memory.control) DirectControl();
  return memory;
}

// By a thread of the driver's, perhaps, which must not call it. Without memory to keep it in mind it is lost.
DirectMeetings::~DirectMeetings() {
  (void)guarded([&] {
    const MutexLock lock(shares().mutex);
    DeviceShare& share = shares().of[&device_];
    share.blocks -= columns_ * static_cast<unsigned>(ranks_);
    if (memory_.mailboxes != nullptr) share.spare.emplace_back(memory_.mailboxes, memory_.control);
    return Status();
  });
}

void DirectMeetings::add_to(DirectCall* call, int rank) const {
  call->rank = rank;
  for (int r = 0; r < ranks_; ++r) call->mailboxes[static_cast<std::size_t>(r)] = memory_.mailboxes + r;
  call->control = memory_.control;
}

}  // namespace tutti::internal
