#include "rdma_checks.h"

#include <dlfcn.h>
#include <fmt/core.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

#include "base/config.h"
#include "memory/memory_monitor.h"
#include "os/kernel_files.h"
#include "transport/verbs/wire.h"

namespace tutti::internal::tools {
namespace {

using namespace transport::verbs;

// A link's memory that is locked for one rail.
constexpr std::uint64_t kLinkBytes = sizeof(Inbox) + sizeof(Outbox);
// With less than this, user memory of ordinary sizes does not fit.
constexpr std::uint64_t kAmpleBytes = std::uint64_t{1} << 30;
// Holds an InfiniBand packet of 4096 bytes with its headers.
constexpr int kAmpleInterfaceMtu = 4200;

std::string name_of(const Port& port) {
  return fmt::format("{}:{}", port.device, port.port);
}

bool is_usable_roce(const Finding& finding) {
  return finding.trouble.empty() && finding.port.fabric == Fabric::kRoce;
}

// "found: do this", as find_ports() says it, in its parts.
Check split_fix(Verdict verdict, const std::string& what, const std::string& text) {
  const std::size_t colon = text.find(": ");
  if (colon == std::string::npos) return {verdict, what, text, ""};
  return {verdict, what, text.substr(0, colon), text.substr(colon + 2)};
}

// CAP_IPC_LOCK, the kernel's number 14, among the effective capabilities. It is effective only in the
// initial user namespace, which maps all ids to themselves: it does not help root of a rootless container.
bool may_lock_all() {
  std::istringstream map(first_line_of("/proc/self/uid_map"));
  std::uint64_t inside = 0;
  std::uint64_t outside = 0;
  std::uint64_t count = 0;
  if (!(map >> inside >> outside >> count) || inside != 0 || outside != 0 || count != 0xffffffff) return false;
  std::ifstream file("/proc/self/status");
  std::string line;
  while (std::getline(file, line)) {
    if (line.starts_with("CapEff:")) return ((std::strtoull(line.c_str() + 7, nullptr, 16) >> 14) & 1) != 0;
  }
  return false;
}

}  // namespace

Checks check_libraries() {
  const Status verbs = check_library();
  if (!verbs.is_ok()) return {split_fix(Verdict::kFail, "libibverbs", verbs.message())};
  Checks checks = {{Verdict::kOk, "libibverbs", "opened", ""}};
  // Opened only to see whether it is there; it stays, as the transport opens it once per process, too.
  if (::dlopen("librdmacm.so.1", RTLD_NOW | RTLD_LOCAL) != nullptr) {
    checks.push_back({Verdict::kOk, "librdmacm", "opened", ""});
  } else {
    checks.push_back({Verdict::kWarn, "librdmacm", "cannot be opened; iWARP and connect=cm need it",
                      "install the package librdmacm1 (rdma-core)"});
  }
  return checks;
}

Checks check_devices(const Roots& roots) {
  if (Status any = check_any_device(roots); !any.is_ok()) {
    return {split_fix(Verdict::kFail, "devices", any.message())};
  }
  Checks checks;
  for (const std::string& device : device_names(roots)) {
    const std::string trouble = access_trouble(roots, device);
    checks.push_back(trouble.empty() ? Check{Verdict::kOk, "access to " + device, "granted", ""}
                                     : split_fix(Verdict::kWarn, "access to " + device, trouble));
  }
  const std::string manager = roots.dev + "/infiniband/rdma_cm";
  if (::access(manager.c_str(), R_OK | W_OK) != 0) {
    checks.push_back({Verdict::kWarn, "connection manager",
                      fmt::format("{}: {}; iWARP and connect=cm need it", manager, std::strerror(errno)),
                      "modprobe rdma_ucm; in a container, pass /dev/infiniband on"});
  } else {
    checks.push_back({Verdict::kOk, "connection manager", "granted", ""});
  }
  return checks;
}

Check check_port(const Finding& finding) {
  const std::string what = "port " + name_of(finding.port);
  if (!finding.trouble.empty()) return split_fix(Verdict::kWarn, what, finding.trouble);
  char rate[32] = "rate unknown";
  if (finding.port.gbits > 0) std::snprintf(rate, sizeof rate, "%g Gb/s", finding.port.gbits);
  return {Verdict::kOk, what, fmt::format("{}, {}, {}", name_of(finding.port.fabric), finding.state, rate), ""};
}

std::optional<Check> check_gid(const Finding& finding) {
  if (!is_usable_roce(finding)) return std::nullopt;
  const Port& port = finding.port;
  const std::string what = "GID of " + name_of(port);
  const std::string found = fmt::format("{}: {}, {}", port.gid_index, port.gid_type, port.address);
  if (port.gid_type != "RoCE v2") {
    return Check{Verdict::kWarn, what, found + "; version 1 crosses no router, and no version 2 port hears it",
                 fmt::format("set RoCE v2 (its driver's default) and give {} an IPv4 address",
                             port.netdev.empty() ? "it" : port.netdev)};
  }
  if (port.address.starts_with("fe80:")) {
    return Check{Verdict::kWarn, what, found + "; a link-local address reaches one network segment only",
                 "ip addr add ADDRESS/BITS dev " + (port.netdev.empty() ? "INTERFACE" : port.netdev)};
  }
  return Check{Verdict::kOk, what, found + (port.subnet.empty() ? "" : " in " + port.subnet), ""};
}

std::optional<Check> check_mtu(const Roots& roots, const Finding& finding) {
  if (!is_usable_roce(finding)) return std::nullopt;
  const Port& port = finding.port;
  const std::string what = "MTU of " + name_of(port);
  const std::string own = first_line_of(fmt::format("{}/class/net/{}/mtu", roots.sys, port.netdev));
  std::string found = fmt::format("{} bytes", port.mtu_bytes);
  if (!own.empty()) found += fmt::format("; that of {} is {}", port.netdev, own);
  if (port.mtu_bytes >= finding.max_mtu_bytes || parse_integer(own, kAmpleInterfaceMtu, 1 << 20)) {
    return Check{Verdict::kOk, what, found, ""};
  }
  return Check{Verdict::kWarn, what, fmt::format("{}; {} are possible", found, finding.max_mtu_bytes),
               fmt::format("ip link set {} mtu {} (or 9000) here, on the peers and on every switch between",
                           port.netdev.empty() ? "INTERFACE" : port.netdev, kAmpleInterfaceMtu)};
}

std::optional<Check> check_losses(const Roots& roots, const Finding& finding) {
  // Of mlx5, mlx4, irdma, bnxt_re and rxe; each has some of them.
  constexpr std::array kCounters = {
      "out_of_sequence",    "packet_seq_err",      "local_ack_timeout_err", "out_of_seq_request", "rcvd_seq_err",
      "retry_exceeded_err", "completer_retry_err", "seq_err_naks_rcvd",     "tcpRetransSegs",     "to_retransmits"};
  if (!finding.trouble.empty()) return std::nullopt;
  const Port& port = finding.port;
  const std::string folder =
      fmt::format("{}/class/infiniband/{}/ports/{}/hw_counters/", roots.sys, port.device, port.port);
  bool any = false;
  std::string lost;
  for (const char* counter : kCounters) {
    const auto count = parse_integer(first_line_of(folder + counter), 0, INT64_MAX);
    any = any || count.has_value();
    if (count.value_or(0) == 0) continue;
    if (!lost.empty()) lost += ", ";
    lost += fmt::format("{} {}", counter, *count);
  }
  const std::string what = "losses on " + name_of(port);
  if (!any) return std::nullopt;
  if (lost.empty()) return Check{Verdict::kOk, what, "none counted", ""};
  return Check{Verdict::kWarn, what, "packets were lost or came out of order since the driver was loaded: " + lost,
               "see whether they grow during a job; then configure PFC or ECN on adapters and switches (docs/rdma.md)"};
}

std::optional<Check> check_congestion_control(const Roots& roots, const Finding& finding, int traffic_class) {
  if (!is_usable_roce(finding)) return std::nullopt;
  const Port& port = finding.port;
  const std::string what = "congestion control on " + name_of(port);
  const std::string used = fmt::format("packets carry DSCP {}", traffic_class >> 2);
  // Nvidia's driver package: notification point and reaction point, by priority.
  std::string off;
  bool any = false;
  for (const char* side : {"roce_np", "roce_rp"}) {
    const std::string folder = fmt::format("{}/class/net/{}/ecn/{}/enable/", roots.sys, port.netdev, side);
    for (const std::string& priority : names_in(folder)) {
      any = true;
      if (first_line_of(folder + priority) != "1") off += std::string(off.empty() ? "" : ", ") + side + "/" + priority;
    }
  }
  if (!off.empty()) {
    return Check{Verdict::kWarn, what, used + "; ECN is off for " + off,
                 fmt::format("echo 1 > {}/class/net/{}/ecn/roce_{{np,rp}}/enable/PRIORITY", roots.sys, port.netdev)};
  }
  if (any) return Check{Verdict::kOk, what, used + "; ECN is on for all priorities", ""};
  return Check{Verdict::kOk, what, used + "; this driver tells nothing of ECN and PFC in /sys", ""};
}

Check check_locked_memory(std::optional<std::uint64_t> limit_bytes, bool privileged) {
  const std::string what = "memory lock limit";
  if (!limit_bytes) return {Verdict::kOk, what, "none", ""};
  if (privileged) return {Verdict::kOk, what, size_text(*limit_bytes) + ", lifted by CAP_IPC_LOCK", ""};
  const std::string fix =
      "ulimit -l unlimited, memlock in limits.conf(5), LimitMEMLOCK=infinity of a systemd service, --ulimit memlock=-1 "
      "of a container";
  const std::uint64_t links = *limit_bytes / kLinkBytes;
  const std::string found =
      fmt::format("{}: room for {} links ({} each, per rail)", size_text(*limit_bytes), links, size_text(kLinkBytes));
  if (links == 0) return {Verdict::kFail, what, found, fix};
  if (*limit_bytes < kAmpleBytes) return {Verdict::kWarn, what, found + " and little user memory", fix};
  return {Verdict::kOk, what, found + ", or as much user memory", ""};
}

Check check_own_locked_memory() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0) {
    return {Verdict::kWarn, "memory lock limit", fmt::format("getrlimit: {}", std::strerror(errno)), ""};
  }
  const bool none = limit.rlim_cur == RLIM_INFINITY;
  return check_locked_memory(none ? std::nullopt : std::optional<std::uint64_t>(limit.rlim_cur), may_lock_all());
}

Check check_registration_cache() {
  std::string why;
  if (memory::MemoryMonitor::instance(&why) != nullptr) {
    return {Verdict::kOk, "registration cache", "the kernel reports changes of memory", ""};
  }
  return {Verdict::kWarn, "registration cache",
          fmt::format("user memory cannot stay registered and is copied ({})", why),
          "allow userfaultfd(2), or use memory from tuttiMemAlloc"};
}

}  // namespace tutti::internal::tools
