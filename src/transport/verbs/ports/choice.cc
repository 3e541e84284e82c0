#include "transport/verbs/ports/choice.h"

#include <arpa/inet.h>
#include <fmt/core.h>

#include <algorithm>
#include <tuple>

#include "base/config.h"

namespace tutti::internal::transport::verbs {
namespace {

// ::ffff:a.b.c.d (RFC 4291, section 2.5.5.2)
bool is_ipv4(const Gid& gid) {
  return std::all_of(gid.bytes.begin(), gid.bytes.begin() + 10, [](std::uint8_t byte) { return byte == 0; }) &&
         gid.bytes[10] == 0xff && gid.bytes[11] == 0xff;
}

bool is_link_local(const Gid& gid) {
  return gid.bytes[0] == 0xfe && (gid.bytes[1] & 0xc0) == 0x80;
}

// Lower is better. InfiniBand's and iWARP's GIDs are equally good: the first is used.
int rank_of(const Gid& gid) {
  if (gid.type == "RoCE v2") return is_ipv4(gid) ? 0 : is_link_local(gid) ? 2 : 1;
  if (gid.type == "RoCE v1") return 3;
  return 0;
}

std::string name_of(const Port& port) {
  return fmt::format("{}:{}", port.device, port.port);
}

std::string troubles(const std::vector<Finding>& findings) {
  std::string text;
  for (const Finding& finding : findings) {
    if (!text.empty()) text += "; ";
    text += name_of(finding.port) + ": " + (finding.trouble.empty() ? "usable" : finding.trouble);
  }
  return text;
}

Status cannot_use(const std::string& wanted, const std::string& why) {
  return Status::invalid_usage(fmt::format("TUTTI_VERBS: device={} cannot be used: {}", wanted, why));
}

// One name of TUTTI_VERBS' device: appends its ports to *chosen.
Status add_named(const std::string& wanted, const std::vector<Finding>& findings, std::vector<Port>* chosen) {
  std::vector<Finding> named;
  std::string all;
  for (const Finding& finding : findings) {
    all += (all.empty() ? "" : ", ") + name_of(finding.port);
    if (wanted == finding.port.device || wanted == name_of(finding.port)) named.push_back(finding);
  }
  if (named.empty()) return cannot_use(wanted, "there is no such port. Available: " + all);
  const bool any = std::any_of(named.begin(), named.end(), [](const Finding& f) { return f.trouble.empty(); });
  if (!any) return cannot_use(wanted, troubles(named));
  for (Finding& finding : named) {
    if (!finding.trouble.empty()) continue;
    const bool twice = std::any_of(chosen->begin(), chosen->end(),
                                   [&](const Port& port) { return name_of(port) == name_of(finding.port); });
    if (!twice) chosen->push_back(std::move(finding.port));
  }
  if (chosen->size() > kMaxRails) {
    return Status::invalid_usage(fmt::format("TUTTI_VERBS: device names more than {} ports", kMaxRails));
  }
  return {};
}

// Near before far, fast before slow, then by name.
bool better(const Port& a, const Port& b) {
  return std::make_tuple(!a.near, -a.gbits, a.device, a.port) < std::make_tuple(!b.near, -b.gbits, b.device, b.port);
}

// The fastest usable port; among equally fast ones the better fabric. Null: no port is usable.
const Port* fastest_of(const std::vector<Finding>& findings) {
  const auto worth = [](const Port& port) { return std::make_tuple(port.gbits, -static_cast<int>(port.fabric)); };
  const Port* fastest = nullptr;
  for (const Finding& finding : findings) {
    if (!finding.trouble.empty()) continue;
    if (fastest == nullptr || worth(*fastest) < worth(finding.port)) fastest = &finding.port;
  }
  return fastest;
}

// Why a usable port is not of the best kind; empty if it is.
std::string unlike(const Port& port, const Port& fastest) {
  if (port.fabric != fastest.fabric) {
    return fmt::format("{}, while the fastest port, {}, is {}", name_of(port.fabric), name_of(fastest),
                       name_of(fastest.fabric));
  }
  if (port.gbits * 2 < fastest.gbits) return "less than half as fast as " + name_of(fastest);
  return {};
}

std::string why_chosen(const Port& port, const Options& options) {
  if (!options.devices.empty()) return "TUTTI_VERBS names it";
  std::string why = port.near ? "near this process" : "far from this process";
  if (port.numa_node < 0) why = "NUMA node unknown";
  return why + ", one of the fastest";
}

std::string why_not_chosen(const Finding& finding, const Port* fastest, const Options& options) {
  if (!finding.trouble.empty()) return "not usable: " + finding.trouble;
  if (!options.devices.empty()) return "TUTTI_VERBS does not select it";
  const std::string kind = unlike(finding.port, *fastest);
  return kind.empty() ? fmt::format("there are {} better ones", kMaxRails) : kind;
}

}  // namespace

const Gid* choose_gid(const std::vector<Gid>& gids, int wanted_index) {
  const auto cost = [](const Gid& gid) { return std::make_tuple(rank_of(gid), gid.netdev.empty(), gid.index); };
  const Gid* best = nullptr;
  for (const Gid& gid : gids) {
    if (gid.index > kMostGidIndex || (wanted_index >= 0 && gid.index != wanted_index)) continue;
    if (best == nullptr || cost(gid) < cost(*best)) best = &gid;
  }
  return best;
}

std::string address_of(const Gid& gid) {
  if (!gid.type.starts_with("RoCE")) return {};
  char text[INET6_ADDRSTRLEN];
  const bool v4 = is_ipv4(gid);
  const char* done = ::inet_ntop(v4 ? AF_INET : AF_INET6, gid.bytes.data() + (v4 ? 12 : 0), text, sizeof text);
  return done != nullptr ? done : "";
}

Result<std::vector<Port>> choose_among(const std::vector<Finding>& findings, const Options& options) {
  std::vector<Port> chosen;
  for (const std::string& wanted : options.devices) {
    if (Status added = add_named(wanted, findings, &chosen); !added.is_ok()) return added;
  }
  if (!options.devices.empty()) return chosen;
  const Port* const fastest = fastest_of(findings);
  if (fastest == nullptr) {
    return Status(Code::kSystemError, "no RDMA port of this machine can be used: " + troubles(findings));
  }
  for (const Finding& finding : findings) {
    if (finding.trouble.empty() && unlike(finding.port, *fastest).empty()) chosen.push_back(finding.port);
  }
  std::sort(chosen.begin(), chosen.end(), better);
  if (chosen.size() > kMaxRails) chosen.resize(kMaxRails);
  return chosen;
}

std::vector<Reason> reasons(const std::vector<Finding>& findings, const Options& options) {
  const Result<std::vector<Port>> chosen = choose_among(findings, options);
  const Port* const fastest = fastest_of(findings);
  std::vector<Reason> all;
  for (const Finding& finding : findings) {
    Reason reason{-1, why_not_chosen(finding, fastest, options)};
    for (std::size_t i = 0; chosen.is_ok() && i < chosen.value().size(); ++i) {
      if (name_of(chosen.value()[i]) != name_of(finding.port)) continue;
      reason = {static_cast<int>(i), why_chosen(finding.port, options)};
    }
    all.push_back(std::move(reason));
  }
  return all;
}

}  // namespace tutti::internal::transport::verbs
