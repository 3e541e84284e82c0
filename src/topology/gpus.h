// The NVIDIA GPUs of this machine, and what joins them, as NVML tells it. NVML is opened at run time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tutti::internal::topology {

// What two GPUs have in common on their way over PCIe (NVML's common ancestor), the nearest first.
enum class PciPath : std::uint8_t {
  kSame,        // one board
  kSwitch,      // one PCIe switch
  kSwitches,    // several, below one host bridge
  kHostBridge,  // a host bridge
  kNode,        // host bridges of one NUMA node
  kSystem,      // the link between NUMA nodes
  kUnknown,
};
// As in nvidia-smi: "PIX", "PXB", "PHB", "NODE", "SYS"; "-" for one board, "?" for unknown.
const char* short_name(PciPath path);

struct Gpu {
  std::string name;  // "NVIDIA H100 80GB HBM3"
  std::string uuid;  // "GPU-5c1e...": that of the CUDA driver, too
  std::string pci;   // "0000:1b:00.0", as in /sys/bus/pci/devices
  int major = 0;     // compute capability
  int minor = 0;
  std::uint64_t memory_bytes = 0;
  int numa_node = -1;                // -1: unknown
  unsigned switch_links = 0;         // active NVLinks that lead to switches, which join all GPUs that have such
  std::vector<unsigned> peer_links;  // active NVLinks that lead to each of the GPUs, by number
  std::vector<PciPath> paths;        // to each of the GPUs

  // NVLinks over which this GPU reaches that one, directly or by way of switches.
  [[nodiscard]] unsigned nvlinks_to(const std::vector<Gpu>& all, std::size_t peer) const;
};

struct Gpus {
  std::vector<Gpu> all;  // by NVML's number, which is the order of PCI addresses
  std::string trouble;   // why none are known, or not all
};

// Looks now: starts NVML and leaves it. Any thread. `library`, `sys`: for tests.
Gpus find_gpus(const char* library = "libnvidia-ml.so.1", const std::string& sys = "/sys");

// Which of `devices`, folders or links in /sys of PCI devices, are behind the most bridges that this GPU is behind,
// too; none of them if they have no host bridge in common with it. By position.
std::vector<std::size_t> nearest(const Gpu& gpu, const std::vector<std::string>& devices,
                                 const std::string& sys = "/sys");

}  // namespace tutti::internal::topology
