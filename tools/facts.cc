#include "facts.h"

#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>

#include "base/config.h"

namespace tutti::internal::tools {
namespace {

using transport::verbs::first_line;
using transport::verbs::names_in;
using transport::verbs::Roots;

int read_number(const std::string& path, int otherwise) {
  return static_cast<int>(parse_integer(first_line(path), 0, 1 << 30).value_or(otherwise));
}

// "Node 0 MemTotal:       16384 kB"
std::uint64_t memory_of(const std::string& folder) {
  std::ifstream file(folder + "/meminfo");
  std::string line;
  while (std::getline(file, line)) {
    std::istringstream words(line);
    std::string node;
    std::string number;
    std::string what;
    std::uint64_t kib = 0;
    if (words >> node >> number >> what >> kib && what == "MemTotal:") return kib * 1024;
  }
  return 0;
}

std::vector<NumaNode> read_numa_nodes(const Roots& roots) {
  const std::string all = roots.sys + "/devices/system/node";
  std::vector<NumaNode> nodes;
  for (const std::string& name : names_in(all)) {
    const auto number = name.starts_with("node") ? parse_integer(name.substr(4), 0, 1 << 16) : std::nullopt;
    if (!number) continue;
    nodes.push_back(
        {static_cast<int>(*number), first_line(all + "/" + name + "/cpulist"), memory_of(all + "/" + name)});
  }
  std::sort(nodes.begin(), nodes.end(), [](const NumaNode& a, const NumaNode& b) { return a.number < b.number; });
  return nodes;
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
    all[entry->ifa_name].push_back(std::string(host) + "/" + std::to_string(prefix_bits(entry->ifa_netmask)));
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
                  first_line(all + name + "/operstate"),
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

std::string range_text(const std::vector<int>& numbers) {
  std::string text;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t last = i;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    if (!text.empty()) text += ',';
    text += std::to_string(numbers[i]);
    if (last > i) text += '-' + std::to_string(numbers[last]);
    i = last + 1;
  }
  return text;
}

Facts read_facts(const Roots& roots) {
  Facts facts;
  utsname name{};
  if (::uname(&name) == 0) {
    facts.host = name.nodename;
    facts.kernel = std::string(name.sysname) + " " + name.release;
  }
  facts.processors = static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN));
  cpu_set_t own;
  if (::sched_getaffinity(0, sizeof own, &own) == 0) {
    std::vector<int> allowed;
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(cpu, &own)) allowed.push_back(cpu);
    }
    facts.allowed_processors = range_text(allowed);
    facts.allowed_count = static_cast<int>(allowed.size());
  }
  facts.numa_nodes = read_numa_nodes(roots);
  facts.interfaces = read_interfaces(roots);
  return facts;
}

}  // namespace tutti::internal::tools
