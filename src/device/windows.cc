#include "device/windows.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <map>
#include <new>
#include <set>
#include <utility>

#include "base/first_use.h"
#include "base/log.h"
#include "memory/pinned_memory.h"
#include "net/frame.h"
#include "os/mutex.h"

namespace tutti::internal {
namespace {

using memory::CudaDevice;

// Of a window. A device gives a quarter of what is left to each, so that many communicators have one.
constexpr std::size_t kMostBytes = std::size_t{64} << 20;
constexpr std::size_t kLeastBytes = std::size_t{1} << 20;
constexpr std::size_t kBytesOfDevice = std::size_t{256} << 20;

// By the host ranks meet once, by windows twice. Processes that share a device take turns on it where they have
// kernels: on an H200 each costs 0.45 ms for each process, whatever it does. There 2 processes all-reduce 1 MiB in 0.46
// ms by the host, in 0.87 by windows; 4 MiB in 1.47 and 0.9.
constexpr std::size_t kLeast = std::size_t{256} << 10;
constexpr std::size_t kLeastOfRankInTurns = std::size_t{1} << 20;

struct Block {
  std::byte* memory = nullptr;
  std::size_t bytes = 0;
  DirectControl* control = nullptr;
};
struct Windows {
  Mutex mutex;
  struct Own {
    std::size_t taken = 0;
    std::vector<Block> spare;
    std::set<std::uint64_t> addresses;  // of all that were ever taken
  };
  std::map<const CudaDevice*, Own> own TUTTI_GUARDED_BY(mutex);
  // Of other processes, by what these drew for themselves: handles of one that has ended may come again.
  using Key = std::tuple<const CudaDevice*, std::array<std::uint8_t, 16>, CudaDevice::IpcHandle>;
  std::map<Key, std::byte*> mapped TUTTI_GUARDED_BY(mutex);
};
Windows& all_windows() {
  static constinit FirstUse<Windows> all;
  return all.get();
}

Result<Block> take_block(const CudaDevice& device) {
  std::size_t bytes = 0;
  {
    const MutexLock lock(all_windows().mutex);
    Windows::Own& own = all_windows().own[&device];
    if (!own.spare.empty()) {
      const Block block = own.spare.back();
      own.spare.pop_back();
      new (block.control) DirectControl();
      return block;
    }
    const std::size_t share = (kBytesOfDevice - std::min(kBytesOfDevice, own.taken)) / 4;
    if (share < kLeastBytes) return Block();
    bytes = std::min(kMostBytes, std::bit_floor(share));
    own.taken += bytes;
  }
  auto control = memory::PinnedMemory::instance().take(sizeof(DirectControl), device);
  auto memory = control.is_ok() ? device.take_zeroed(bytes) : Result<std::byte*>(control.status());
  const MutexLock lock(all_windows().mutex);
  if (memory.is_ok()) {
    all_windows().own[&device].addresses.insert(reinterpret_cast<std::uint64_t>(*memory));
    return Block{*memory, bytes, new (control->memory) DirectControl()};
  }
  all_windows().own[&device].taken -= bytes;
  return memory.status();
}

}  // namespace

std::string DirectWindows::Offer::pack() const {
  net::Packer packer;
  packer.number(bytes).number(address).text(device);
  packer.text(std::string(reinterpret_cast<const char*>(handle.data()), handle.size()));
  return packer.bytes();
}

Result<DirectWindows::Offer> DirectWindows::Offer::unpack(const std::string& bytes) {
  net::Unpacker unpacker(bytes);
  Offer offer;
  offer.bytes = unpacker.number<std::uint64_t>();
  offer.address = unpacker.number<std::uint64_t>();
  offer.device = unpacker.text();
  const std::string handle = unpacker.text();
  const bool has_window = offer.bytes >= kLeastBytes && offer.bytes <= kMostBytes && std::has_single_bit(offer.bytes);
  if (!unpacker.complete() || handle.size() != offer.handle.size() || (offer.bytes != 0 && !has_window)) {
    return Status::remote("protocol error: a rank's description of its window cannot be read");
  }
  std::copy_n(reinterpret_cast<const std::byte*>(handle.data()), handle.size(), offer.handle.begin());
  return offer;
}

bool DirectWindows::may_serve(const std::vector<PeerInfo>& peers) {
  const PeerInfo& first = peers.front();
  return peers.size() > 1 && peers.size() <= kMostDirectRanks &&
         std::all_of(peers.begin() + 1, peers.end(), [&](const PeerInfo& p) { return p.same_machine(first); }) &&
         std::any_of(peers.begin() + 1, peers.end(), [&](const PeerInfo& p) { return p.process != first.process; });
}

Result<std::unique_ptr<DirectWindows>> DirectWindows::open(const std::vector<PeerInfo>& peers, int rank,
                                                           const CudaDevice& device, const DirectKernels* kernels,
                                                           const AllGather& all_gather) {
  const auto n = static_cast<int>(peers.size());
  std::unique_ptr<DirectWindows> made(new DirectWindows(rank, n, device, kernels));
  Offer own;
  Status works = made->take(&own);
  auto texts = all_gather((works.is_ok() ? own : Offer()).pack());
  if (!texts.is_ok()) return texts.status();
  std::vector<Offer> offers;
  std::uint64_t least = UINT64_MAX;
  for (const std::string& text : *texts) {
    auto offer = Offer::unpack(text);
    if (!offer.is_ok()) return offer.status();
    least = std::min(least, offer->bytes);
    offers.push_back(std::move(*offer));
  }
  if (least > 0) {
    made->half_bytes_ = least / 2;
    std::set<std::string> devices;
    for (const Offer& offer : offers) devices.insert(offer.device);
    const bool in_turns = devices.size() < offers.size();
    made->least_bytes_ = in_turns ? kLeastOfRankInTurns * offers.size() : kLeast;
    works = made->map(offers, peers);
    auto answers = all_gather(works.is_ok() ? "1" : "0");
    if (!answers.is_ok()) return answers.status();
    const bool all = std::all_of(answers->begin(), answers->end(), [](const std::string& a) { return a == "1"; });
    if (all) return made;
  }
  if (!works.is_ok()) log::info(fmt::format("rank {} cannot use windows on devices: {}", rank, works.message()));
  made->set_quiet();  // nobody has touched it
  return std::unique_ptr<DirectWindows>();
}

Status DirectWindows::take(Offer* offer) {
  if (kernels_ == nullptr) return Status(Code::kUnhandledCudaError, "there is no code for the device");
  const memory::CudaCurrent current = device_.use();
  if (Status s = current.status(); !s.is_ok()) return s;
  auto block = take_block(device_);
  if (!block.is_ok()) return block.status();
  if (block->memory == nullptr) return Status(Code::kUnhandledCudaError, "other communicators use all windows");
  own_ = block->memory;
  own_bytes_ = block->bytes;
  control_ = block->control;
  auto handle = device_.ipc_handle(own_);
  if (!handle.is_ok()) return handle.status();
  auto uuid = device_.uuid();
  if (!uuid.is_ok()) return uuid.status();
  *offer = {own_bytes_, reinterpret_cast<std::uint64_t>(own_), std::move(*uuid), *handle};
  return {};
}

Status DirectWindows::map(const std::vector<Offer>& offers, const std::vector<PeerInfo>& peers) {
  const memory::CudaCurrent current = device_.use();
  if (Status s = current.status(); !s.is_ok()) return s;
  for (std::size_t r = 0; r < offers.size(); ++r) {
    const Offer& offer = offers[r];
    if (peers[r].process == peers[rank_].process) {
      if (offer.device != offers[rank_].device) {
        return Status(Code::kUnhandledCudaError, "ranks of one process use several devices");
      }
      const MutexLock lock(all_windows().mutex);
      if (!all_windows().own[&device_].addresses.contains(offer.address)) {
        return Status::remote(fmt::format("protocol error: rank {} names an unknown window of this process", r));
      }
      windows_[r] = reinterpret_cast<std::byte*>(offer.address);
      continue;
    }
    const MutexLock lock(all_windows().mutex);
    std::byte*& mapped = all_windows().mapped[{&device_, peers[r].process, offer.handle}];
    if (mapped == nullptr) {
      auto opened = device_.open_ipc(offer.handle);
      if (!opened.is_ok()) return opened.status();
      mapped = *opened;
    }
    windows_[r] = mapped;
  }
  return {};
}

// Without memory to keep it in mind it is lost.
DirectWindows::~DirectWindows() {
  if (own_ == nullptr || !quiet_ || captured_) return;
  (void)guarded([&] {
    const MutexLock lock(all_windows().mutex);
    all_windows().own[&device_].spare.push_back({own_, own_bytes_, control_});
    return Status();
  });
}

DirectCall DirectWindows::part_of(const Call& call, std::size_t count) const {
  DirectCall made = internal::direct_call(call.collective, call.type, call.op, call.root, ranks_);
  made.count = count;
  made.element_bytes = element_bytes_of(call);
  made.only = static_cast<int>(rank_);
  made.control = control_;
  for (int r = 0; r < ranks_; ++r) {
    const auto i = static_cast<std::size_t>(r);
    made.in[i] = windows_[i];
    made.out[i] = windows_[i] + half_bytes_;
  }
  return made;
}

}  // namespace tutti::internal
