#include "facts.h"

#include <fmt/core.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/utsname.h>

#include <map>
#include <memory>

#include "base/config.h"
#include "os/kernel_files.h"

namespace tutti::internal::tools {
namespace {

using transport::verbs::names_in;
using transport::verbs::Roots;

int read_number(const std::string& path, int otherwise) {
  return static_cast<int>(parse_integer(first_line_of(path), 0, 1 << 30).value_or(otherwise));
}

int prefix_bits(const sockaddr* mask) {
  if (mask == nullptr) return 0;
  const bool v4 = mask->sa_family == AF_INET;
  const auto* bytes = v4 ? reinterpret_cast<const unsigned char*>(&reinterpret_cast<const sockaddr_in*>(mask)->sin_addr)
                         : reinterpret_cast<const sockaddr_in6*>(mask)->sin6_addr.s6_addr;
  int bits = 0;
  for (std::size_t i = 0; i < (v4 ? sizeof(in_addr) : sizeof(in6_addr)); ++i) bits += __builtin_popcount(bytes[i]);
  return bits;
}

// By interface.
std::map<std::string, std::vector<std::string>> all_addresses() {
  std::map<std::string, std::vector<std::string>> all;
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return all;
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, &::freeifaddrs);
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr) continue;
    const int family = entry->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    char host[NI_MAXHOST];
    const socklen_t length = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    if (::getnameinfo(entry->ifa_addr, length, host, sizeof host, nullptr, 0, NI_NUMERICHOST) != 0) continue;
    all[entry->ifa_name].push_back(fmt::format("{}/{}", host, prefix_bits(entry->ifa_netmask)));
  }
  return all;
}

std::vector<Interface> read_interfaces(const Roots& roots) {
  const std::string all = roots.sys + "/class/net/";
  const auto addresses = all_addresses();
  std::vector<Interface> interfaces;
  for (const std::string& name : names_in(all)) {
    // Drivers without a rate say -1, or nothing at all.
    Interface one{name,
                  first_line_of(all + name + "/operstate"),
                  read_number(all + name + "/speed", 0) / 1000.0,
                  read_number(all + name + "/mtu", 0),
                  read_number(all + name + "/device/numa_node", -1),
                  {}};
    if (one.state.empty()) continue;  // a file such as bonding_masters
    if (const auto found = addresses.find(name); found != addresses.end()) one.addresses = found->second;
    interfaces.push_back(std::move(one));
  }
  return interfaces;
}

}  // namespace

std::string range_text(const topology::ProcessorSet& numbers) {
  std::string text;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (!numbers[i]) continue;
    const std::size_t first = i;
    while (i + 1 < numbers.size() && numbers[i + 1]) ++i;
    if (!text.empty()) text += ',';
    text += std::to_string(first);
    if (i > first) text += '-' + std::to_string(i);
  }
  return text;
}

Facts read_facts(const Roots& roots) {
  Facts facts;
  utsname name{};
  if (::uname(&name) == 0) {
    facts.host = name.nodename;
    facts.kernel = fmt::format("{} {}", name.sysname, name.release);
  }
  facts.interfaces = read_interfaces(roots);
  return facts;
}

}  // namespace tutti::internal::tools
