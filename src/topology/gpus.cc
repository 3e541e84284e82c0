#include "topology/gpus.h"

#include <dlfcn.h>
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <memory>

#include "base/symbol.h"

namespace tutti::internal::topology {
namespace {

// More than today's NVML_NVLINK_MAX_LINKS (18): the first unknown link ends the search.
constexpr unsigned kMostLinks = 64;
constexpr std::size_t kTextBytes = 96;

// nvml.h's.
using Handle = struct NvmlDevice*;
struct PciInfo {
  std::array<char, 16> legacy_id;
  unsigned domain;
  unsigned bus;
  unsigned device;
  unsigned device_id;
  unsigned subsystem_id;
  std::array<char, 32> id;
};
struct MemoryInfo {
  unsigned long long total;
  unsigned long long free;
  unsigned long long used;
};
enum Remote : int { kRemoteGpu = 0, kRemoteSwitch = 2 };

struct Nvml {
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  const char* (*error)(int) = nullptr;
  int (*count)(unsigned*) = nullptr;
  int (*handle)(unsigned, Handle*) = nullptr;
  int (*name)(Handle, char*, unsigned) = nullptr;
  int (*uuid)(Handle, char*, unsigned) = nullptr;
  int (*pci)(Handle, PciInfo*) = nullptr;
  int (*memory)(Handle, MemoryInfo*) = nullptr;
  int (*capability)(Handle, int*, int*) = nullptr;
  int (*ancestor)(Handle, Handle, unsigned*) = nullptr;
  int (*link_state)(Handle, unsigned, unsigned*) = nullptr;
  int (*link_remote)(Handle, unsigned, PciInfo*) = nullptr;
  int (*link_remote_type)(Handle, unsigned, int*) = nullptr;  // null in drivers before CUDA 11.3

  // False: a function is missing; dlerror(3) names it.
  bool find(void* library) {
    const bool all =
        find_symbol(library, "nvmlInit_v2", &init) && find_symbol(library, "nvmlShutdown", &shutdown) &&
        find_symbol(library, "nvmlErrorString", &error) && find_symbol(library, "nvmlDeviceGetCount_v2", &count) &&
        find_symbol(library, "nvmlDeviceGetHandleByIndex_v2", &handle) &&
        find_symbol(library, "nvmlDeviceGetName", &name) && find_symbol(library, "nvmlDeviceGetUUID", &uuid) &&
        find_symbol(library, "nvmlDeviceGetPciInfo_v3", &pci) &&
        find_symbol(library, "nvmlDeviceGetMemoryInfo", &memory) &&
        find_symbol(library, "nvmlDeviceGetCudaComputeCapability", &capability) &&
        find_symbol(library, "nvmlDeviceGetTopologyCommonAncestor", &ancestor) &&
        find_symbol(library, "nvmlDeviceGetNvLinkState", &link_state) &&
        find_symbol(library, "nvmlDeviceGetNvLinkRemotePciInfo_v2", &link_remote);
    if (all) (void)find_symbol(library, "nvmlDeviceGetNvLinkRemoteDeviceType", &link_remote_type);
    return all;
  }
};

std::string address_of(const PciInfo& info) {
  return fmt::format("{:04x}:{:02x}:{:02x}.0", info.domain, info.bus, info.device);
}

int node_of(const std::string& sys, const std::string& pci) {
  std::ifstream file(sys + "/bus/pci/devices/" + pci + "/numa_node");
  int node = -1;
  file >> node;
  return file ? node : -1;
}

PciPath path_of(unsigned level) {
  switch (level) {
    case 0: return PciPath::kSame;
    case 10: return PciPath::kSwitch;
    case 20: return PciPath::kSwitches;
    case 30: return PciPath::kHostBridge;
    case 40: return PciPath::kNode;
    case 50: return PciPath::kSystem;
    default: return PciPath::kUnknown;
  }
}

// The properties of one GPU; unknown ones are missing.
Gpu describe(const Nvml& nvml, Handle handle, const std::string& sys) {
  Gpu gpu;
  std::array<char, kTextBytes> text{};
  if (nvml.name(handle, text.data(), kTextBytes) == 0) gpu.name = text.data();
  if (nvml.uuid(handle, text.data(), kTextBytes) == 0) gpu.uuid = text.data();
  PciInfo pci{};
  if (nvml.pci(handle, &pci) == 0) {
    gpu.pci = address_of(pci);
    gpu.numa_node = node_of(sys, gpu.pci);
  }
  MemoryInfo memory{};
  if (nvml.memory(handle, &memory) == 0) gpu.memory_bytes = memory.total;
  (void)nvml.capability(handle, &gpu.major, &gpu.minor);
  return gpu;
}

void find_links(const Nvml& nvml, Handle handle, const std::vector<Gpu>& all, Gpu* gpu) {
  gpu->peer_links.assign(all.size(), 0);
  for (unsigned link = 0; link < kMostLinks; ++link) {
    unsigned active = 0;
    if (nvml.link_state(handle, link, &active) != 0) return;
    if (active == 0) continue;
    int type = kRemoteGpu;
    if (nvml.link_remote_type != nullptr && nvml.link_remote_type(handle, link, &type) != 0) continue;
    if (type == kRemoteSwitch) {
      ++gpu->switch_links;
      continue;
    }
    PciInfo remote{};
    if (type != kRemoteGpu || nvml.link_remote(handle, link, &remote) != 0) continue;
    const std::string address = address_of(remote);
    const auto peer = std::find_if(all.begin(), all.end(), [&](const Gpu& one) { return one.pci == address; });
    if (peer != all.end()) ++gpu->peer_links[static_cast<std::size_t>(peer - all.begin())];
  }
}

Gpus look(const Nvml& nvml, const std::string& sys) {
  Gpus gpus;
  const auto failed = [&](int result, const char* what) {
    if (result == 0) return false;
    if (gpus.trouble.empty()) gpus.trouble = fmt::format("NVML: {}: {}", what, nvml.error(result));
    return true;
  };
  unsigned count = 0;
  if (failed(nvml.count(&count), "counting the GPUs")) return gpus;
  std::vector<Handle> handles;
  for (unsigned i = 0; i < count; ++i) {
    Handle handle = nullptr;
    if (failed(nvml.handle(i, &handle), "a GPU")) continue;
    handles.push_back(handle);
    gpus.all.push_back(describe(nvml, handle, sys));
  }
  for (std::size_t i = 0; i < handles.size(); ++i) {
    Gpu& gpu = gpus.all[i];
    find_links(nvml, handles[i], gpus.all, &gpu);
    for (std::size_t peer = 0; peer < handles.size(); ++peer) {
      unsigned level = 0;
      const bool known = peer == i || nvml.ancestor(handles[i], handles[peer], &level) == 0;
      gpu.paths.push_back(known ? path_of(level) : PciPath::kUnknown);
    }
  }
  return gpus;
}

// The path below /sys/devices: the host bridge, then bridges and the device.
std::vector<std::string> place_of(const std::string& device) {
  std::error_code failed;
  const std::filesystem::path place = std::filesystem::canonical(device, failed);
  std::vector<std::string> names;
  for (const auto& part : place) {
    const std::string name = part.string();
    if (!names.empty() || name.starts_with("pci")) names.push_back(name);
  }
  return names;
}

}  // namespace

const char* short_name(PciPath path) {
  static constexpr std::array kNames = {"-", "PIX", "PXB", "PHB", "NODE", "SYS", "?"};
  static_assert(kNames.size() == static_cast<std::size_t>(PciPath::kUnknown) + 1);
  return kNames[static_cast<std::size_t>(path)];
}

unsigned Gpu::nvlinks_to(const std::vector<Gpu>& all, std::size_t peer) const {
  return peer_links[peer] + std::min(switch_links, all[peer].switch_links);
}

Gpus find_gpus(const char* library, const std::string& sys) {
  Gpus none;
  const auto close = [](void* handle) { (void)::dlclose(handle); };
  const std::unique_ptr<void, decltype(close)> opened(::dlopen(library, RTLD_NOW | RTLD_LOCAL), close);
  if (opened == nullptr) {
    none.trouble = fmt::format("there is no NVIDIA driver with {}", library);
    return none;
  }
  Nvml nvml;
  if (!nvml.find(opened.get())) {
    const char* const why = ::dlerror();
    none.trouble = fmt::format("NVML is too old: {}", why != nullptr ? why : "a function is missing");
    return none;
  }
  if (const int result = nvml.init(); result != 0) {
    none.trouble = fmt::format("NVML cannot be started: {}", nvml.error(result));
    return none;
  }
  Gpus gpus = look(nvml, sys);
  (void)nvml.shutdown();
  return gpus;
}

std::vector<std::size_t> nearest(const Gpu& gpu, const std::vector<std::string>& devices, const std::string& sys) {
  const std::vector<std::string> own = place_of(sys + "/bus/pci/devices/" + gpu.pci);
  std::vector<std::size_t> result;
  std::size_t most = 1;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    const std::vector<std::string> other = place_of(devices[i]);
    const auto [end, unused] = std::mismatch(own.begin(), own.end(), other.begin(), other.end());
    const auto shared = static_cast<std::size_t>(end - own.begin());
    if (shared < most) continue;
    if (shared > most) result.clear();
    most = shared;
    result.push_back(i);
  }
  return result;
}

}  // namespace tutti::internal::topology
