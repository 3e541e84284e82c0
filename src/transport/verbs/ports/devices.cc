#include "transport/verbs/ports/devices.h"

#include <fmt/core.h>
#include <net/if.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <span>
#include <tuple>

#include "base/hex.h"
#include "transport/verbs/library.h"

namespace tutti::internal::transport::verbs {
namespace {

constexpr std::uint32_t kSoftIwarpVendor = 0x626d74;  // what Linux's siw driver calls itself

// Parameters of the search.
struct Search {
  const Library& library;
  const Options& options;
  const std::vector<int>& far_nodes;
  const Roots& roots;
};

using Context = std::unique_ptr<ibv_context, decltype(&::ibv_close_device)>;

// What libibverbs knows of the machine's devices.
class DeviceList {
 public:
  explicit DeviceList(const Library& library)
      : list_(library.get_device_list(&count_), library.free_device_list), error_(errno) {}
  [[nodiscard]] bool valid() const { return list_ != nullptr; }
  // An errno. REQUIRES: not valid().
  [[nodiscard]] int error() const { return error_; }
  [[nodiscard]] int count() const { return valid() ? count_ : 0; }
  ibv_device* operator[](int i) const { return list_.get()[i]; }

 private:
  int count_ = 0;
  std::unique_ptr<ibv_device*, decltype(&::ibv_free_device_list)> list_;
  int error_ = 0;
};

const char* gid_type_name(std::uint32_t type) {
  switch (type) {
    case IBV_GID_TYPE_ROCE_V1: return "RoCE v1";
    case IBV_GID_TYPE_ROCE_V2: return "RoCE v2";
    default: return "IB";
  }
}

const char* state_name(ibv_port_state state) {
  switch (state) {
    case IBV_PORT_DOWN: return "down";
    case IBV_PORT_INIT: return "initializing";
    case IBV_PORT_ARMED: return "armed";
    case IBV_PORT_ACTIVE: return "active";
    case IBV_PORT_ACTIVE_DEFER: return "active, deferred";
    default: return "unknown";
  }
}

int mtu_bytes(ibv_mtu mtu) {
  return mtu >= IBV_MTU_256 && mtu <= IBV_MTU_4096 ? 128 << mtu : 0;
}

// The non-empty entries of all ports, in one request instead of up to a thousand.
std::vector<ibv_gid_entry> gid_table(const Search& search, ibv_context* context, int ports) {
  std::size_t most = 0;
  for (int number = 1; number <= ports; ++number) {
    ibv_port_attr attributes{};
    if (search.library.port_attributes(context, static_cast<std::uint8_t>(number), &attributes) != 0) continue;
    most += static_cast<std::size_t>(std::max(attributes.gid_tbl_len, 0));
  }
  std::vector<ibv_gid_entry> entries(most);
  const ssize_t count = search.library.query_gid_table(context, entries.data(), most, 0, sizeof(ibv_gid_entry));
  entries.resize(count > 0 ? static_cast<std::size_t>(count) : 0);
  return entries;
}

std::vector<Gid> gids_of(const std::vector<ibv_gid_entry>& table, std::uint8_t port) {
  std::vector<Gid> gids;
  for (const ibv_gid_entry& entry : table) {
    Gid gid;
    std::copy(std::begin(entry.gid.raw), std::end(entry.gid.raw), gid.bytes.begin());
    const bool empty = std::all_of(gid.bytes.begin(), gid.bytes.end(), [](std::uint8_t byte) { return byte == 0; });
    if (entry.port_num != port || empty) continue;
    gid.index = static_cast<int>(entry.gid_index);
    gid.type = gid_type_name(entry.gid_type);
    char name[IF_NAMESIZE];
    if (entry.ndev_ifindex != 0 && ::if_indextoname(entry.ndev_ifindex, name) != nullptr) gid.netdev = name;
    gids.push_back(std::move(gid));
  }
  return gids;
}

// The port's address in its fabric. Returns what is missing; empty: nothing.
std::string fill_address(const Search& search, const std::vector<Gid>& gids, Port* port) {
  // iWARP's GIDs are hardware addresses; it connects by IP.
  if (port->fabric == Fabric::kIwarp) {
    if (search.options.connect == Connect::kExchange) {
      return "iWARP connects only through librdmacm. Remove connect=exchange from TUTTI_VERBS";
    }
    port->netdev = interface_of(search.roots, port->device, port->port);
    const auto address = address_of_interface(port->netdev);
    if (!gids.empty()) port->gid = gids.front().bytes;
    port->gid_type = "iWARP";
    if (port->netdev.empty()) return "its network interface cannot be found";
    if (!address) return "no IP address: ip addr add ADDRESS/BITS dev " + port->netdev;
    port->address = address->address;
    port->subnet = address->subnet;
    return {};
  }
  const Gid* const gid = choose_gid(gids, search.options.gid_index);
  if (gid == nullptr && search.options.gid_index >= 0) {
    return fmt::format("TUTTI_VERBS asks for gid_index={}, but the port has no GID there", search.options.gid_index);
  }
  if (gid == nullptr) return "no GID: its network interface has no address (ip addr add ADDRESS/BITS dev INTERFACE)";
  port->gid_index = gid->index;
  port->gid = gid->bytes;
  port->gid_type = gid->type;
  port->netdev = gid->netdev;
  port->address = address_of(*gid);
  port->subnet = subnet_of(port->address);
  if (port->fabric == Fabric::kInfiniband) {
    port->subnet = "ib " + to_hex(std::span(gid->bytes).first(8));
  }
  if (search.options.connect == Connect::kManager && port->address.empty()) {
    // IP over InfiniBand.
    port->netdev = interface_of(search.roots, port->device, port->port);
    const auto address = address_of_interface(port->netdev);
    if (!address) return "connect=cm needs an IP address: modprobe ib_ipoib and give its interface one";
    port->address = address->address;
  }
  return {};
}

std::string state_trouble(const ibv_port_attr& attributes, const Port& port) {
  if (attributes.state == IBV_PORT_ACTIVE) return {};
  const std::string what = fmt::format("the port is {}", state_name(attributes.state));
  if (port.fabric == Fabric::kInfiniband) {
    return what + (attributes.state == IBV_PORT_DOWN
                       ? ": check cable and switch"
                       : ": a subnet manager must configure it (opensm, or the switch's)");
  }
  return fmt::format("{}: check cable and switch, and set its network interface up (ip link set {} up)", what,
                     port.netdev.empty() ? "INTERFACE" : port.netdev);
}

Finding find_port(const Search& search, ibv_context* context, const std::vector<ibv_gid_entry>& table,
                  std::uint8_t number, Finding found) {
  Port& port = found.port;
  port.port = number;
  ibv_port_attr attributes{};
  if (const int error = search.library.port_attributes(context, number, &attributes); error != 0) {
    found.trouble = fmt::format("the port cannot be queried: {}", std::strerror(error));
    return found;
  }
  if (port.fabric != Fabric::kIwarp) {
    port.fabric = attributes.link_layer == IBV_LINK_LAYER_ETHERNET ? Fabric::kRoce : Fabric::kInfiniband;
  }
  found.state = state_name(attributes.state);
  found.max_mtu_bytes = mtu_bytes(attributes.max_mtu);
  found.gids = gids_of(table, number);
  port.lid = attributes.lid;
  if (const int bytes = mtu_bytes(attributes.active_mtu); bytes > 0) port.mtu_bytes = bytes;
  port.gbits = port_gbits(search.roots, port.device, number);
  const std::string address_trouble = fill_address(search, found.gids, &port);
  found.trouble = state_trouble(attributes, port);
  if (found.trouble.empty()) found.trouble = address_trouble;
  return found;
}

void find_on_device(const Search& search, ibv_device* device, std::vector<Finding>* findings) {
  Finding found;
  found.port.device = search.library.get_device_name(device);
  found.port.numa_node = numa_node_of(search.roots, found.port.device);
  found.port.near = is_near(search.roots, found.port.device, search.far_nodes);
  if (device->transport_type == IBV_TRANSPORT_IWARP) {
    found.port.fabric = Fabric::kIwarp;
  } else if (device->transport_type != IBV_TRANSPORT_IB) {
    found.trouble = "its transport is not InfiniBand, RoCE or iWARP, and has no reliable connections";
    findings->push_back(std::move(found));
    return;
  }
  const Context context(search.library.open_device(device), search.library.close_device);
  ibv_device_attr attributes{};
  if (context == nullptr) {
    const int error = errno;
    found.trouble = access_trouble(search.roots, found.port.device);
    if (found.trouble.empty()) found.trouble = fmt::format("it cannot be opened: {}", std::strerror(error));
  } else if (const int error = search.library.query_device(context.get(), &attributes); error != 0) {
    found.trouble = fmt::format("it cannot be queried: {}", std::strerror(error));
  }
  if (!found.trouble.empty()) {
    findings->push_back(std::move(found));
    return;
  }
  found.port.soft_iwarp = attributes.vendor_id == kSoftIwarpVendor;
  const auto table = gid_table(search, context.get(), attributes.phys_port_cnt);
  for (int number = 1; number <= attributes.phys_port_cnt; ++number) {
    findings->push_back(find_port(search, context.get(), table, static_cast<std::uint8_t>(number), found));
  }
}

// The problem of a device that the kernel knows and the library does not list.
std::string unlisted_trouble(const Roots& roots, const std::string& device) {
  std::string access = access_trouble(roots, device);
  if (!access.empty()) return access;
  return "libibverbs has no driver for it: install the package ibverbs-providers (rdma-core)";
}

}  // namespace

Result<std::vector<Finding>> find_ports(const Options& options, const std::vector<int>& far_nodes, const Roots& roots) {
  if (Status any = check_any_device(roots); !any.is_ok()) return any;
  const Result<const Library*> library = Library::load();
  if (!library.is_ok()) return library.status();
  const Search search{*library.value(), options, far_nodes, roots};
  const DeviceList list(search.library);
  if (!list.valid()) return Status::system("libibverbs cannot list RDMA devices", list.error());
  std::vector<Finding> findings;
  for (int i = 0; i < list.count(); ++i) find_on_device(search, list[i], &findings);
  for (const std::string& name : device_names(roots)) {
    if (std::any_of(findings.begin(), findings.end(), [&](const Finding& f) { return f.port.device == name; }))
      continue;
    Finding unlisted;
    unlisted.port.device = name;
    unlisted.trouble = unlisted_trouble(roots, name);
    findings.push_back(std::move(unlisted));
  }
  std::sort(findings.begin(), findings.end(), [](const Finding& a, const Finding& b) {
    return std::tie(a.port.device, a.port.port) < std::tie(b.port.device, b.port.port);
  });
  return findings;
}

Status check_library() {
  return Library::load().status();
}

Result<std::vector<Port>> choose_ports(const Options& options, const std::vector<int>& far_nodes) {
  const Result<std::vector<Finding>> findings = find_ports(options, far_nodes);
  if (!findings.is_ok()) return findings.status();
  return choose_among(findings.value(), options);
}

}  // namespace tutti::internal::transport::verbs
