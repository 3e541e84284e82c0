#include "transport/verbs/ports/machine.h"

#include <arpa/inet.h>
#include <fmt/core.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <span>
#include <system_error>

#include "base/config.h"
#include "os/kernel_files.h"

namespace tutti::internal::transport::verbs {
namespace {

std::string folder_of(const Roots& roots, const std::string& device) {
  return roots.sys + "/class/infiniband/" + device;
}

bool exists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

struct FreeAddresses {
  void operator()(ifaddrs* list) const { ::freeifaddrs(list); }
};
using Addresses = std::unique_ptr<ifaddrs, FreeAddresses>;

Addresses all_addresses() {
  ifaddrs* list = nullptr;
  return Addresses(::getifaddrs(&list) == 0 ? list : nullptr);
}

// The bytes of an IPv4 or IPv6 address in network order; empty for other families.
std::span<const unsigned char> bytes_of(const sockaddr* address) {
  if (address == nullptr) return {};
  if (address->sa_family == AF_INET) {
    const auto* in = reinterpret_cast<const sockaddr_in*>(address);
    return {reinterpret_cast<const unsigned char*>(&in->sin_addr), sizeof in->sin_addr};
  }
  if (address->sa_family == AF_INET6) {
    const auto* in6 = reinterpret_cast<const sockaddr_in6*>(address);
    return {reinterpret_cast<const unsigned char*>(&in6->sin6_addr), sizeof in6->sin6_addr};
  }
  return {};
}

std::string text_of(std::span<const unsigned char> bytes) {
  char text[INET6_ADDRSTRLEN];
  const int family = bytes.size() == sizeof(in_addr) ? AF_INET : AF_INET6;
  return ::inet_ntop(family, bytes.data(), text, sizeof text) != nullptr ? text : "";
}

bool is_link_local6(std::span<const unsigned char> bytes) {
  return bytes.size() == sizeof(in6_addr) && bytes[0] == 0xfe && (bytes[1] & 0xc0) == 0x80;
}

std::string subnet_of_entry(const ifaddrs& entry) {
  const auto address = bytes_of(entry.ifa_addr);
  const auto mask = bytes_of(entry.ifa_netmask);
  if (address.empty() || mask.size() != address.size() || is_link_local6(address)) return {};
  std::array<unsigned char, sizeof(in6_addr)> network{};
  int bits = 0;
  for (std::size_t i = 0; i < address.size(); ++i) {
    network[i] = address[i] & mask[i];
    bits += __builtin_popcount(mask[i]);
  }
  return fmt::format("{}/{}", text_of({network.data(), address.size()}), bits);
}

std::string hex_digits(std::string text) {
  std::erase(text, ':');
  return text;
}

// The interface with the hardware address that an iWARP port's GID begins with. VLANs and bridges may share that
// address with the real interface, which is a device's or at least older.
std::string interface_by_hardware_address(const Roots& roots, const std::string& gid) {
  constexpr std::size_t kDigits = 12;
  const std::string wanted = hex_digits(gid).substr(0, kDigits);
  if (wanted.find_first_not_of('0') == std::string::npos) return {};
  const std::string all = roots.sys + "/class/net/";
  const auto worth = [&](const std::string& name) {
    return std::make_pair(!exists(all + name + "/device"),
                          parse_integer(first_line_of(all + name + "/ifindex"), 0, 1 << 30));
  };
  std::string best;
  for (const std::string& name : names_in(all)) {
    if (hex_digits(first_line_of(all + name + "/address")) != wanted) continue;
    if (best.empty() || worth(name) < worth(best)) best = name;
  }
  return best;
}

}  // namespace

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  std::filesystem::directory_iterator entry(folder, error);
  while (!error && entry != std::filesystem::directory_iterator()) {
    names.push_back(entry->path().filename().string());
    entry.increment(error);
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<std::string> device_names(const Roots& roots) {
  return names_in(roots.sys + "/class/infiniband");
}

Status check_any_device(const Roots& roots) {
  if (!device_names(roots).empty()) return {};
  return {Code::kSystemError,
          fmt::format("no RDMA device on this machine ({}/class/infiniband is {}): load the driver of the RDMA context "
                      "(mlx5_ib, irdma, bnxt_re, ...) or, in a container, give it the devices; for soft-RoCE: modprobe "
                      "rdma_rxe && rdma link add rxe0 type rxe netdev INTERFACE",
                      roots.sys, exists(roots.sys + "/class/infiniband") ? "empty" : "missing")};
}

std::string access_trouble(const Roots& roots, const std::string& device) {
  const std::string all = roots.sys + "/class/infiniband_verbs";
  std::string name;
  for (const std::string& one : names_in(all)) {
    if (first_line_of(fmt::format("{}/{}/ibdev", all, one)) == device) name = one;
  }
  if (name.empty()) return "the kernel offers it to no program: modprobe ib_uverbs";
  const std::string path = roots.dev + "/infiniband/" + name;
  if (::access(path.c_str(), R_OK | W_OK) == 0) return {};
  if (errno == ENOENT || errno == ENOTDIR) {
    return fmt::format(
        "{} is missing: in a container, pass the devices on (docker run --device=/dev/infiniband), else install "
        "rdma-core, whose udev rules make it",
        path);
  }
  return fmt::format(
      "{} cannot be opened ({}): give this user access to it (mode 0666 is usual), or run as a user with access", path,
      std::strerror(errno));
}

double port_gbits(const Roots& roots, const std::string& device, int port) {
  // "100 Gb/sec (4X EDR)"
  return std::strtod(first_line_of(fmt::format("{}/ports/{}/rate", folder_of(roots, device), port)).c_str(), nullptr);
}

int numa_node_of(const Roots& roots, const std::string& device) {
  const auto node = parse_integer(first_line_of(folder_of(roots, device) + "/device/numa_node"), 0, 1 << 16);
  return node ? static_cast<int>(*node) : -1;
}

bool is_near(const Roots& roots, const std::string& device, const std::vector<int>& far_nodes) {
  const int node = numa_node_of(roots, device);
  return node < 0 || std::find(far_nodes.begin(), far_nodes.end(), node) == far_nodes.end();
}

std::string interface_of(const Roots& roots, const std::string& device, int port) {
  const std::string folder = folder_of(roots, device);
  const std::string table = fmt::format("{}/ports/{}/gid_attrs/ndevs", folder, port);
  for (const std::string& index : names_in(table)) {
    if (std::string name = first_line_of(table + "/" + index); !name.empty()) return name;
  }
  const std::string gid = first_line_of(fmt::format("{}/ports/{}/gids/0", folder, port));
  if (std::string name = interface_by_hardware_address(roots, gid); !name.empty()) return name;
  // The PCI function's interfaces: on adapters with several ports of one function, in their order.
  const std::vector<std::string> interfaces = names_in(folder + "/device/net");
  const auto at = static_cast<std::size_t>(port - 1);
  if (!interfaces.empty()) return interfaces[std::min(at, interfaces.size() - 1)];
  return first_line_of(folder + "/parent");
}

std::optional<InterfaceAddress> address_of_interface(const std::string& interface) {
  const Addresses list = all_addresses();
  for (const std::size_t wanted : {sizeof(in_addr), sizeof(in6_addr)}) {
    for (const ifaddrs* entry = list.get(); entry != nullptr; entry = entry->ifa_next) {
      const auto bytes = bytes_of(entry->ifa_addr);
      if (entry->ifa_name != interface || bytes.size() != wanted || is_link_local6(bytes)) continue;
      return InterfaceAddress{text_of(bytes), subnet_of_entry(*entry)};
    }
  }
  return std::nullopt;
}

std::string subnet_of(const std::string& address) {
  const Addresses list = all_addresses();
  for (const ifaddrs* entry = list.get(); entry != nullptr; entry = entry->ifa_next) {
    const auto bytes = bytes_of(entry->ifa_addr);
    if (!bytes.empty() && text_of(bytes) == address) return subnet_of_entry(*entry);
  }
  return {};
}

}  // namespace tutti::internal::transport::verbs
