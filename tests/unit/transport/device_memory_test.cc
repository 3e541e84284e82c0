// Memory of GPUs, on a machine without any: errors name what is missing, and registrations follow allocations as the
// driver's interface describes them. The driver and the library are tables of functions; these are replacements.
#include "transport/verbs/device_memory.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "catch_compat.h"
#include "memory/cuda_driver.h"

using namespace tutti::internal;
using namespace tutti::internal::transport::verbs;

namespace {

// One GPU and its allocations.
struct Gpu {
  struct Block {
    std::size_t bytes;
    std::uint64_t id;
  };
  std::map<memory::CudaDriver::Address, Block> blocks;
  std::uint64_t next_id = 1;
  int dmabuf = 1;

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
  DeviceMemory memory() { return {verbs, memory::CudaExport(cuda), std::vector<ibv_pd*>(2)}; }
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
  // Not at the beginning of a page, like small allocations.
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

TEST_CASE("the error names what GPUDirect lacks") {
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
