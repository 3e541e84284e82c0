// A stand-in for NVML: two NUMA nodes with two GPUs each. The first three are on an NVSwitch by 18 links, of which GPU
// 2 has lost two; GPU 3 has four links to GPU 2, one of them down. With NVML_STAND_IN=broken it does not start.
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace {

constexpr unsigned kGpus = 4;
constexpr std::array<unsigned, kGpus> kBuses = {0x1b, 0x43, 0x9d, 0xdb};

struct PciInfo {
  char legacy_id[16];
  unsigned domain, bus, device, device_id, subsystem_id;
  char id[32];
};

unsigned number_of(void* device) {
  return static_cast<unsigned>(reinterpret_cast<std::size_t>(device)) - 1;
}

void fill(unsigned gpu, PciInfo* info) {
  *info = {};
  info->bus = kBuses[gpu];
  std::snprintf(info->id, sizeof info->id, "00000000:%02X:00.0", info->bus);
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

int nvmlInit_v2() {
  const char* const how = std::getenv("NVML_STAND_IN");
  return how != nullptr && std::string_view(how) == "broken" ? 9 : 0;
}
int nvmlShutdown() {
  return 0;
}
const char* nvmlErrorString(int) {
  return "an error of the stand-in's";
}
int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = kGpus;
  return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  *device = reinterpret_cast<void*>(static_cast<std::size_t>(index) + 1);
  return 0;
}
int nvmlDeviceGetName(void*, char* name, unsigned bytes) {
  std::snprintf(name, bytes, "NVIDIA Stand-in");
  return 0;
}
int nvmlDeviceGetUUID(void* device, char* uuid, unsigned bytes) {
  std::snprintf(uuid, bytes, "GPU-00000000-0000-0000-0000-00000000000%u", number_of(device));
  return 0;
}
int nvmlDeviceGetPciInfo_v3(void* device, PciInfo* info) {
  fill(number_of(device), info);
  return 0;
}
int nvmlDeviceGetMemoryInfo(void*, unsigned long long* total_free_used) {
  total_free_used[0] = 80ULL << 30;
  return 0;
}
int nvmlDeviceGetCudaComputeCapability(void*, int* major, int* minor) {
  *major = 9;
  *minor = 0;
  return 0;
}
int nvmlDeviceGetTopologyCommonAncestor(void* a, void* b, unsigned* level) {
  *level = number_of(a) / 2 == number_of(b) / 2 ? 40 : 50;
  return 0;
}
int nvmlDeviceGetNvLinkState(void* device, unsigned link, unsigned* active) {
  const unsigned links = number_of(device) == 3 ? 4 : 18;
  if (link >= links) return 2;
  *active = (number_of(device) == 2 && link < 2) || (number_of(device) == 3 && link == 0) ? 0 : 1;
  return 0;
}
int nvmlDeviceGetNvLinkRemoteDeviceType(void* device, unsigned, int* type) {
  *type = number_of(device) == 3 ? 0 : 2;
  return 0;
}
int nvmlDeviceGetNvLinkRemotePciInfo_v2(void* device, unsigned, PciInfo* info) {
  if (number_of(device) != 3) return 3;
  fill(2, info);
  return 0;
}
}
#pragma GCC visibility pop
