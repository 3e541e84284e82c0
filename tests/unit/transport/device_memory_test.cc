// Memory of GPUs, on a machine that has none: what is missing is said, and registrations follow allocations as the
// driver's interface describes them. The driver and the library are tables of functions; these stand for them.
#include "transport/verbs/device_memory.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "catch_compat.h"
#include "memory/cuda_driver.h"
#include "memory/pinned_staging.h"

using namespace tutti::internal;
using namespace tutti::internal::transport::verbs;

namespace {

// One GPU and its allocations; copies wait until they are released.
struct Gpu {
  struct Block {
    std::size_t bytes;
    std::uint64_t id;
  };
  struct Copy {
    memory::CudaDriver::Address to, from;
    std::size_t bytes;
  };
  std::map<memory::CudaDriver::Address, Block> blocks;
  std::uint64_t next_id = 1;
  int dmabuf = 1;
  int fail = 0;  // what the next host allocation or event gives
  std::vector<Copy> copies;
  std::map<memory::CudaDriver::Event, std::size_t> recorded;  // event -> copies before it
  std::size_t finished = 0;
  std::set<void*> host;
  std::size_t events = 0;
  int contexts = 0;
  int pushed = 0;
  bool streams_open = false;

  // Registrations by RDMA devices.
  struct Region {
    ibv_mr mr{};
    std::uint64_t offset, address;
    std::size_t bytes;
  };
  std::map<ibv_mr*, std::unique_ptr<Region>> regions;
  std::size_t most_regions = SIZE_MAX;
  std::uint32_t next_key = 100;
};
Gpu* gpu = nullptr;

std::map<memory::CudaDriver::Address, Gpu::Block>::iterator block_of(memory::CudaDriver::Address address) {
  auto at = gpu->blocks.upper_bound(address);
  if (at == gpu->blocks.begin()) return gpu->blocks.end();
  --at;
  return address < at->first + at->second.bytes ? at : gpu->blocks.end();
}

int pointer_attribute(void* value, int attribute, memory::CudaDriver::Address address) {
  const auto block = block_of(address);
  if (block == gpu->blocks.end()) return 1;
  if (attribute == memory::CudaDriver::kPointerBufferId) std::memcpy(value, &block->second.id, 8);
  if (attribute == memory::CudaDriver::kPointerMemoryType)
    std::memcpy(value, &memory::CudaDriver::kMemoryTypeDevice, 4);
  if (attribute == memory::CudaDriver::kPointerIsManaged || attribute == memory::CudaDriver::kPointerDevice)
    std::memset(value, 0, 4);
  return 0;
}

memory::CudaDriver driver() {
  memory::CudaDriver d;
  d.error_text = [](int, const char** text) { return *text = "as the test wants", 0; };
  d.device_get = [](int* device, int ordinal) { return *device = ordinal, ordinal == 0 ? 0 : 101; };
  d.device_attribute = [](int* value, int, int) { return *value = gpu->dmabuf, 0; };
  d.retain_context = [](memory::CudaDriver::Context*, int) { return ++gpu->contexts, 0; };
  d.release_context = [](int) { return --gpu->contexts, 0; };
  d.push_context = [](memory::CudaDriver::Context) { return ++gpu->pushed, 0; };
  d.pop_context = [](memory::CudaDriver::Context*) { return --gpu->pushed, 0; };
  d.pointer_attribute = pointer_attribute;
  d.set_pointer_attribute = [](const void*, int, memory::CudaDriver::Address) { return 0; };
  d.address_range = [](memory::CudaDriver::Address* base, std::size_t* bytes, memory::CudaDriver::Address address) {
    const auto block = block_of(address);
    if (block == gpu->blocks.end()) return 1;
    *base = block->first;
    *bytes = block->second.bytes;
    return 0;
  };
  d.handle_for_range = [](void* handle, memory::CudaDriver::Address address, std::size_t bytes, int type,
                          unsigned long long) {
    if (type != memory::CudaDriver::kHandleDmabuf || address % 4096 != 0 || bytes % 4096 != 0) return 1;
    const int fd = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    std::memcpy(handle, &fd, sizeof fd);
    return 0;
  };
  d.host_alloc = [](void** address, std::size_t bytes, unsigned) {
    if (gpu->fail != 0) return std::exchange(gpu->fail, 0);
    *address = std::malloc(bytes);
    gpu->host.insert(*address);
    return 0;
  };
  d.host_free = [](void* address) {
    gpu->host.erase(address);
    std::free(address);
    return 0;
  };
  d.copy_async = [](memory::CudaDriver::Address to, memory::CudaDriver::Address from, std::size_t bytes,
                    memory::CudaDriver::Stream) {
    gpu->copies.push_back({to, from, bytes});
    return 0;
  };
  d.stream_create = [](memory::CudaDriver::Stream*, unsigned) { return gpu->streams_open = true, 0; };
  d.stream_synchronize = [](memory::CudaDriver::Stream) { return 0; };
  d.stream_destroy = [](memory::CudaDriver::Stream) { return gpu->streams_open = false, 0; };
  d.event_create = [](memory::CudaDriver::Event* event, unsigned) {
    *event = reinterpret_cast<memory::CudaDriver::Event>(++gpu->events);
    return 0;
  };
  d.event_record = [](memory::CudaDriver::Event event, memory::CudaDriver::Stream) {
    gpu->recorded[event] = gpu->copies.size();
    return 0;
  };
  d.event_query = [](memory::CudaDriver::Event event) {
    return gpu->recorded[event] <= gpu->finished ? 0 : memory::CudaDriver::kNotReady;
  };
  d.event_destroy = [](memory::CudaDriver::Event) { return --gpu->events, 0; };
  return d;
}

Library library() {
  Library l;
  l.reg_dmabuf_mr = [](ibv_pd*, std::uint64_t offset, std::size_t bytes, std::uint64_t address, int fd,
                       int) -> ibv_mr* {
    if (gpu->regions.size() >= gpu->most_regions || ::fcntl(fd, F_GETFD) < 0) return errno = EOPNOTSUPP, nullptr;
    auto region = std::make_unique<Gpu::Region>();
    region->offset = offset;
    region->address = address;
    region->bytes = bytes;
    region->mr.lkey = gpu->next_key++;
    region->mr.rkey = gpu->next_key++;
    ibv_mr* const mr = &region->mr;
    gpu->regions[mr] = std::move(region);
    return mr;
  };
  l.dereg_mr = [](ibv_mr* mr) { return gpu->regions.erase(mr) == 1 ? 0 : EINVAL; };
  return l;
}

struct Rig {
  Rig() { gpu = &state; }
  Rig(const Rig&) = delete;
  Rig& operator=(const Rig&) = delete;
  ~Rig() { gpu = nullptr; }
  Gpu state;
  memory::CudaDriver cuda = driver();
  Library verbs = library();
  DeviceMemory memory() { return {verbs, cuda, std::vector<ibv_pd*>(2)}; }
  std::byte* allocate(memory::CudaDriver::Address address, std::size_t bytes) {
    state.blocks[address] = {bytes, state.next_id++};
    return reinterpret_cast<std::byte*>(address);
  }
};

constexpr memory::CudaDriver::Address kAddress = 0x7f0000000000;

}  // namespace

TEST_CASE("a machine without the CUDA driver says so") {
  const auto missing = memory::CudaDriver::open("libtutti_no_such_driver.so.1");
  REQUIRE_FALSE(missing.is_ok());
  CHECK(missing.status().code() == Code::kUnhandledCudaError);
  CHECK(missing.status().message().find("libtutti_no_such_driver") != std::string::npos);
  const auto other = memory::CudaDriver::open("libc.so.6");
  REQUIRE_FALSE(other.is_ok());
  CHECK(other.status().message().find("too old") != std::string::npos);
  const auto loaded = memory::CudaDriver::load();
  CHECK((loaded.is_ok() || !loaded.status().message().empty()));
}

TEST_CASE("an allocation of a GPU is registered whole, with every RDMA device, while it exists") {
  Rig rig;
  DeviceMemory memory = rig.memory();
  // Not at a page's beginning, as small allocations are.
  std::byte* const p = rig.allocate(kAddress + 512, 100'000);
  const memory::RdmaKeys* keys = nullptr;
  REQUIRE(memory.find(p + 1000, 10, &keys).is_ok());
  REQUIRE(rig.state.regions.size() == 2);
  const Gpu::Region& region = *rig.state.regions.begin()->second;
  CHECK(region.offset == 512);
  CHECK(region.address == kAddress + 512);
  CHECK(region.bytes == 100'000);
  CHECK(keys->rkeys[0] != keys->rkeys[1]);
  const memory::RdmaKeys* again = nullptr;
  REQUIRE(memory.find(p, 100'000, &again).is_ok());
  CHECK(again == keys);
  CHECK(memory.find(p + 1, 100'000, &again).code() == Code::kUnhandledCudaError);
  CHECK(again == nullptr);
  CHECK(rig.state.regions.size() == 2);

  SECTION("freed and given out again, larger") {
    const std::uint32_t old = keys->rkeys[0];
    rig.state.blocks.clear();
    CHECK_FALSE(memory.find(p, 10, &again).is_ok());
    rig.allocate(kAddress, 200'000);
    REQUIRE(memory.find(p, 10, &again).is_ok());
    CHECK(again->rkeys[0] != old);
    CHECK(rig.state.regions.size() == 2);
  }
  SECTION("freed: let go in time") {
    rig.state.blocks.clear();
    for (int i = 0; i < 100; ++i) memory.begin_operation();
    CHECK(memory.registered() == 0);
    CHECK(rig.state.regions.empty());
  }
  SECTION("kept while it is there") {
    for (int i = 0; i < 100; ++i) memory.begin_operation();
    CHECK(memory.registered() == 1);
  }
}

TEST_CASE("what GPUDirect lacks is named") {
  Rig rig;
  std::byte* const p = rig.allocate(kAddress, 4096);
  std::string text;
  SECTION("the GPU") {
    rig.state.dmabuf = 0;
    text = "open kernel modules";
  }
  SECTION("the CUDA driver") {
    rig.cuda.handle_for_range = nullptr;
    text = "CUDA 11.7";
  }
  SECTION("libibverbs") {
    rig.verbs.reg_dmabuf_mr = nullptr;
    text = "rdma-core 34";
  }
  SECTION("one of the RDMA devices") {
    rig.state.most_regions = 1;
    text = "RDMA device 1 cannot map";
  }
  DeviceMemory memory = rig.memory();
  for (int i = 0; i < 2; ++i) {
    const memory::RdmaKeys* keys = nullptr;
    const Status found = memory.find(p, 1, &keys);
    REQUIRE_FALSE(found.is_ok());
    INFO(found.message());
    CHECK(found.message().find(text) != std::string::npos);
  }
  CHECK(rig.state.regions.empty());
  CHECK(memory.registered() == 0);
}

TEST_CASE("copies through pinned memory are done in order") {
  Rig rig;
  {
    auto made = memory::PinnedStaging::make(rig.cuda, 0, 1 << 16);
    REQUIRE(made.is_ok());
    memory::PinnedStaging& staging = **made;
    CHECK(staging.memory().size() == 1 << 16);
    auto* const device = rig.allocate(kAddress, 1 << 16);
    std::uint64_t number = 0;
    REQUIRE(staging.from_device(100, device + 7, 50, &number).is_ok());
    CHECK(number == 1);
    REQUIRE(staging.to_device(device, 200, 60, &number).is_ok());
    CHECK(number == 2);
    REQUIRE(rig.state.copies.size() == 2);
    CHECK(rig.state.copies[0].to == reinterpret_cast<memory::CudaDriver::Address>(staging.memory().data() + 100));
    CHECK(rig.state.copies[0].from == kAddress + 7);
    CHECK(rig.state.copies[1].to == kAddress);
    CHECK(rig.state.copies[1].from == reinterpret_cast<memory::CudaDriver::Address>(staging.memory().data() + 200));
    std::uint64_t ended = 99;
    REQUIRE(staging.done(&ended).is_ok());
    CHECK(ended == 0);
    rig.state.finished = 1;
    REQUIRE(staging.done(&ended).is_ok());
    CHECK(ended == 1);
    CHECK(staging.from_device((1 << 16) - 1, device, 2, &number).code() == Code::kInvalidArgument);
    // Until all that can be told apart are under way.
    while (staging.from_device(0, device, 1, &number).is_ok() && number != 0) {
    }
    CHECK(rig.state.copies.size() == 1 + memory::PinnedStaging::kMostCopies);
    rig.state.finished = 2;
    REQUIRE(staging.from_device(0, device, 1, &number).is_ok());
    CHECK(number == 2 + memory::PinnedStaging::kMostCopies);
  }
  CHECK(rig.state.host.empty());
  CHECK(rig.state.events == 0);
  CHECK(rig.state.contexts == 0);
  CHECK(rig.state.pushed == 0);
  CHECK_FALSE(rig.state.streams_open);
}

TEST_CASE("staging that cannot be made leaves nothing behind") {
  Rig rig;
  CHECK(memory::PinnedStaging::make(rig.cuda, 1, 4096).status().code() == Code::kUnhandledCudaError);
  rig.state.fail = 2;
  const auto made = memory::PinnedStaging::make(rig.cuda, 0, 4096);
  REQUIRE_FALSE(made.is_ok());
  CHECK(made.status().message().find("CUDA error 2") != std::string::npos);
  CHECK(rig.state.contexts == 0);
  CHECK(rig.state.pushed == 0);
}
