// The NVIDIA GPUs of this machine and their links, from NVML, which is opened at run time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tutti::internal::topology {

// The common ancestor of two GPUs on PCIe (as in NVML), the nearest first.
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
  unsigned switch_links = 0;         // active NVLinks to switches, which join all GPUs with such links
  std::vector<unsigned> peer_links;  // active NVLinks to each of the GPUs, by number
  std::vector<PciPath> paths;        // to each of the GPUs

  // The number of NVLinks between this GPU and `peer`, direct or through switches.
  [[nodiscard]] unsigned nvlinks_to(const std::vector<Gpu>& all, std::size_t peer) const;
};

struct Gpus {
  std::vector<Gpu> all;  // by NVML's number, which is the order of PCI addresses
  std::string trouble;   // why GPUs are missing
};

// Searches now: starts NVML and ends it. Any thread. `library`, `sys`: for tests.
Gpus find_gpus(const char* library = "libnvidia-ml.so.1", const std::string& sys = "/sys");

// The indices of the `devices` (folders or links in /sys of PCI devices) that share the most bridges with this GPU;
// empty if no device shares its host bridge.
std::vector<std::size_t> nearest(const Gpu& gpu, const std::vector<std::string>& devices,
                                 const std::string& sys = "/sys");

}  // namespace tutti::internal::topology
