// Device memory for the ranks' rendezvous: mailboxes of graphs, and windows.
#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <map>
#include <new>
#include <set>
#include <tuple>
#include <utility>

#include "base/first_use.h"
#include "base/log.h"
#include "device/rendezvous.h"
#include "memory/pinned_memory.h"
#include "net/frame.h"

namespace tutti::internal {
namespace {

using memory::CudaDevice;

// Of a window. Each window gets a quarter of what is left on the device, so that many communicators can have one.
constexpr std::size_t kMostWindowBytes = std::size_t{64} << 20;
constexpr std::size_t kLeastWindowBytes = std::size_t{1} << 20;
constexpr std::size_t kWindowBytesOfDevice = std::size_t{256} << 20;

// Staged ranks rendezvous once at the host, with windows twice. Processes that share a device get it in time slices: on
// an H200 each kernel costs 0.45 ms for each process, for any work. There 2 processes all-reduce 1 MiB in 0.46 ms
// staged, in 0.87 ms by windows; 4 MiB in 1.47 ms and 0.9 ms.
constexpr std::size_t kLeastByWindows = std::size_t{256} << 10;
constexpr std::size_t kLeastByWindowsOfSharedDevice = std::size_t{1} << 20;  // for each rank

// The device resources that all communicators of the process use.
struct DeviceShare {
  unsigned blocks = 0;                  // of communicators whose kernels wait for others
  std::size_t window_bytes = 0;         // ever allocated
  std::vector<SharedMemory> mailboxes;  // not used by any communicator
  std::vector<SharedMemory> windows;    // likewise
};
struct Shares {
  Mutex mutex;  // not held during a call of the driver: destructors of graphs need it, in a thread of the driver
  std::map<const CudaDevice*, DeviceShare> of TUTTI_GUARDED_BY(mutex);
};
Shares& shares() {
  static constinit FirstUse<Shares> all;
  return all.get();
}

// Windows of other processes, mapped until this process ends. Keyed by random numbers of those processes, because
// handles of an ended process may be reused.
struct MappedWindows {
  Mutex mutex;
  using Key = std::tuple<const CudaDevice*, std::array<std::uint8_t, 16>, CudaDevice::IpcHandle>;
  std::map<Key, std::byte*> all TUTTI_GUARDED_BY(mutex);
};
MappedWindows& mapped_windows() {
  static constinit FirstUse<MappedWindows> all;
  return all.get();
}

using Spare = std::vector<SharedMemory> DeviceShare::*;

// Null: there is none.
SharedMemory take_spare(Spare of, const CudaDevice& device) {
  const MutexLock lock(shares().mutex);
  auto& spare = shares().of[&device].*of;
  if (spare.empty()) return {};
  const SharedMemory taken = spare.back();
  spare.pop_back();
  new (taken.control) DirectControl();
  return taken;
}

// If memory to record it is missing, it is lost.
void give_back(Spare of, const SharedMemory& memory, const CudaDevice& device) noexcept {
  (void)guarded([&] {
    const MutexLock lock(shares().mutex);
    (shares().of[&device].*of).push_back(memory);
    return Status();
  });
}

Result<SharedMemory> make_shared_memory(std::size_t bytes, const CudaDevice& device) {
  auto control = memory::PinnedMemory::instance().take(sizeof(DirectControl), device);
  if (!control.is_ok()) return control.status();
  auto memory = device.take_zeroed(bytes);
  if (!memory.is_ok()) {
    memory::PinnedMemory::instance().give_back(*control);
    return memory.status();
  }
  return SharedMemory{*memory, bytes, new (control->memory) DirectControl()};
}

Result<SharedMemory> take_window(const CudaDevice& device) {
  const SharedMemory spare = take_spare(&DeviceShare::windows, device);
  if (spare.memory != nullptr) return spare;
  MutexLock lock(shares().mutex);
  std::size_t& taken = shares().of[&device].window_bytes;
  const std::size_t share = (kWindowBytesOfDevice - std::min(kWindowBytesOfDevice, taken)) / 4;
  if (share < kLeastWindowBytes)
    return Status(
        Code::kUnhandledCudaError,
        "other communicators have all windows, or had them when they failed: a window is not reused after that");
  const std::size_t bytes = std::min(kMostWindowBytes, std::bit_floor(share));
  taken += bytes;
  lock.unlock();
  auto made = guarded_result([&] { return make_shared_memory(bytes, device); });
  lock.lock();
  if (!made.is_ok()) taken -= bytes;
  return made;
}

// Filled with zero, for kMostDirectRanks.
Result<SharedMemory> take_mailboxes(const CudaDevice& device) {
  constexpr std::size_t kBytes = sizeof(DirectMailbox) * kMostDirectRanks;
  const SharedMemory spare = take_spare(&DeviceShare::mailboxes, device);
  if (spare.memory == nullptr) return make_shared_memory(kBytes, device);
  if (Status s = device.zero(spare.memory, kBytes); !s.is_ok()) {
    give_back(&DeviceShare::mailboxes, spare, device);
    return s;
  }
  return spare;
}

// Thread blocks of each rank. A communicator takes half of the blocks that are left, so that many can take some.
unsigned take_blocks(int ranks, const DirectKernels& kernels, const CudaDevice& device) {
  const MutexLock lock(shares().mutex);
  unsigned& taken = shares().of[&device].blocks;
  const unsigned left = kernels.most_resident_blocks() - std::min(kernels.most_resident_blocks(), taken);
  const unsigned columns = std::min(kMostDirectBlocks, left / 2 / static_cast<unsigned>(ranks));
  taken += columns * static_cast<unsigned>(ranks);
  return columns;
}

void give_back_blocks(unsigned blocks, const CudaDevice& device) {
  const MutexLock lock(shares().mutex);
  shares().of.at(&device).blocks -= blocks;
}

// Whether the ranks are on one machine, in several processes.
bool may_have_windows(const RankTable<PeerInfo>& peers) {
  const PeerInfo& first = peers.front();
  return peers.size() > 1 && peers.size() <= kMostDirectRanks &&
         std::all_of(std::next(peers.begin()), peers.end(), [&](const PeerInfo& p) { return p.same_machine(first); }) &&
         std::any_of(std::next(peers.begin()), peers.end(),
                     [&](const PeerInfo& p) { return p.process != first.process; });
}

}  // namespace

// May run in a thread of the driver, which must not call the driver.
DeviceRendezvous::~DeviceRendezvous() {
  for (const Member& m : members_) {
    if (m.quiet && m.window.memory != nullptr) give_back(&DeviceShare::windows, m.window, *m.device);
  }
  if (columns_ == 0) return;
  const CudaDevice& device = *members_.front().device;
  give_back(&DeviceShare::mailboxes, mailboxes_, device);
  give_back_blocks(columns_ * static_cast<unsigned>(ranks_), device);
}

Result<bool> DeviceRendezvous::open_mailboxes(const DirectKernels& kernels) {
  MutexLock lock(mutex_);
  while (mailboxes_state_ == Mailboxes::kBeingOpened) changed_.wait(mutex_);
  if (mailboxes_state_ == Mailboxes::kOpen) return columns_ != 0;
  // The driver may wait for running kernels, and these for a rank that has not called yet.
  const CudaDevice& device = *members_.front().device;
  mailboxes_state_ = Mailboxes::kBeingOpened;
  lock.unlock();
  unsigned columns = 0;
  auto taken = guarded_result([&]() -> Result<SharedMemory> {
    columns = take_blocks(ranks_, kernels, device);
    return columns == 0 ? SharedMemory() : take_mailboxes(device);
  });
  if (!taken.is_ok() && columns != 0) give_back_blocks(columns * static_cast<unsigned>(ranks_), device);
  lock.lock();
  mailboxes_state_ = taken.is_ok() ? Mailboxes::kOpen : Mailboxes::kNone;
  changed_.notify_all();
  if (!taken.is_ok()) return taken.status();
  mailboxes_ = *taken;
  columns_ = columns;
  for (auto& control : controls_) control.store(mailboxes_.control);
  if (stopped_.load()) stop(0);
  return columns_ != 0;
}

void DeviceRendezvous::add_mailboxes(DirectCall* call, int rank) const {
  call->rank = rank;
  for (int r = 0; r < ranks_; ++r) {
    call->mailboxes[static_cast<std::size_t>(r)] = reinterpret_cast<DirectMailbox*>(mailboxes_.memory) + r;
  }
  call->control = mailboxes_.control;
}

DirectReport DeviceRendezvous::report(int rank) const {
  DirectControl* const words = control(rank);
  if (words == nullptr) return {};
  std::atomic_ref<std::uint64_t> report(words->reports[static_cast<std::size_t>(rank)]);
  return unpack_report(report.load(std::memory_order_acquire));
}

struct DeviceRendezvous::Offer {
  std::uint64_t bytes = 0;  // 0: it has no window
  std::string device;       // the identity of the device
  CudaDevice::IpcHandle handle{};

  [[nodiscard]] std::string pack() const {
    net::Packer packer;
    packer.number(bytes).text(device);
    packer.text(std::string(reinterpret_cast<const char*>(handle.data()), handle.size()));
    return packer.bytes();
  }
  static Result<Offer> unpack(const std::string& text) {
    net::Unpacker unpacker(text);
    Offer offer;
    offer.bytes = unpacker.number<std::uint64_t>();
    offer.device = unpacker.text();
    const std::string handle = unpacker.text();
    const bool has_window =
        offer.bytes >= kLeastWindowBytes && offer.bytes <= kMostWindowBytes && std::has_single_bit(offer.bytes);
    if (!unpacker.complete() || handle.size() != offer.handle.size() || (offer.bytes != 0 && !has_window)) {
      return Status::remote("protocol error: what a rank tells of its window cannot be read");
    }
    std::copy_n(reinterpret_cast<const std::byte*>(handle.data()), handle.size(), offer.handle.begin());
    return offer;
  }
};

Result<bool> DeviceRendezvous::open_windows(int rank, const RankTable<PeerInfo>& peers, const DirectKernels* kernels,
                                            const AllGather& all_gather) {
  if (!may_have_windows(peers)) return false;
  Offer own;
  Status works = offer_window(rank, kernels, &own);
  auto texts = all_gather((works.is_ok() ? own : Offer()).pack());
  if (!texts.is_ok()) return texts.status();
  std::vector<Offer> offers;
  for (const std::string& text : *texts) {
    auto offer = Offer::unpack(text);
    if (!offer.is_ok()) return offer.status();
    offers.push_back(std::move(*offer));
  }
  if (std::all_of(offers.begin(), offers.end(), [](const Offer& offer) { return offer.bytes > 0; })) {
    works = map_windows(rank, kernels, offers, peers);
    auto answers = all_gather(works.is_ok() ? "1" : "0");
    if (!answers.is_ok()) return answers.status();
    if (std::all_of(answers->begin(), answers->end(), [](const std::string& answer) { return answer == "1"; })) {
      const MutexLock lock(mutex_);
      controls_[static_cast<std::size_t>(rank)].store(member(rank).window.control);
      if (stopped_.load()) stop(rank);
      return true;
    }
  }
  if (!works.is_ok()) log::info(fmt::format("rank {} accesses no windows on devices: {}", rank, works.message()));
  const MutexLock lock(mutex_);
  Member& self = member(rank);
  if (self.window.memory != nullptr) give_back(&DeviceShare::windows, std::exchange(self.window, {}), *self.device);
  return false;
}

Status DeviceRendezvous::offer_window(int rank, const DirectKernels* kernels, Offer* offer) {
  if (kernels == nullptr) return Status(Code::kUnhandledCudaError, "there is no code for the device");
  MutexLock lock(mutex_);
  const CudaDevice& device = *member(rank).device;
  lock.unlock();
  const memory::CudaCurrent current = device.use();
  if (Status s = current.status(); !s.is_ok()) return s;
  auto window = take_window(device);
  if (!window.is_ok()) return window.status();
  lock.lock();
  member(rank).window = *window;
  lock.unlock();
  auto handle = device.ipc_handle(window->memory);
  if (!handle.is_ok()) return handle.status();
  auto uuid = device.uuid();
  if (!uuid.is_ok()) return uuid.status();
  *offer = {window->bytes, std::move(*uuid), *handle};
  return {};
}

// All ranks of a process have the same device, so all do the same.
Status DeviceRendezvous::map_windows(int rank, const DirectKernels* kernels, const std::vector<Offer>& offers,
                                     const RankTable<PeerInfo>& peers) {
  const auto self = static_cast<std::size_t>(rank);
  DeviceWindows mapped;
  mapped.kernels = kernels;
  std::set<std::string> devices;
  MutexLock lock(mutex_);
  const CudaDevice& device = *member(rank).device;
  for (std::size_t r = 0; r < offers.size(); ++r) {
    devices.insert(offers[r].device);
    if (peers[r].process != peers[self].process) continue;
    const Member& beside = member(static_cast<int>(r));
    if (beside.device != &device) return Status(Code::kUnhandledCudaError, "ranks of one process have several devices");
    mapped.memory[r] = beside.window.memory;
  }
  lock.unlock();
  const memory::CudaCurrent current = device.use();
  if (Status s = current.status(); !s.is_ok()) return s;
  std::uint64_t least = kMostWindowBytes;
  for (std::size_t r = 0; r < offers.size(); ++r) {
    least = std::min(least, offers[r].bytes);
    if (mapped.memory[r] != nullptr) continue;
    const MutexLock mapping(mapped_windows().mutex);
    std::byte*& known = mapped_windows().all[{&device, peers[r].process, offers[r].handle}];
    if (known == nullptr) {
      auto opened = device.open_ipc(offers[r].handle);
      if (!opened.is_ok()) return opened.status();
      known = *opened;
    }
    mapped.memory[r] = known;
  }
  mapped.half_bytes = least / 2;
  mapped.least_bytes = devices.size() < offers.size() ? kLeastByWindowsOfSharedDevice * offers.size() : kLeastByWindows;
  lock.lock();
  windows_ = mapped;
  return {};
}

DirectCall DeviceRendezvous::part_by_windows(const Call& call, std::size_t count, int rank) const {
  DirectCall made = direct_call(call.collective, call.type, call.op, call.root, ranks_);
  made.count = count;
  made.element_bytes = element_bytes_of(call);
  made.only = rank;
  made.control = control(rank);
  for (std::size_t r = 0; r < static_cast<std::size_t>(ranks_); ++r) {
    made.in[r] = windows_.memory[r];
    made.out[r] = windows_.memory[r] + windows_.half_bytes;
  }
  return made;
}

}  // namespace tutti::internal
