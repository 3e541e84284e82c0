#include "topo_job.h"

#include <fmt/core.h>
#include <tutti/tutti.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "candidates.h"
#include "topology/cluster.h"
#include "topology/detect.h"
#include "topology/graph_json.h"

namespace tutti::internal::tools {
namespace {

Status failed(tuttiResult_t result, const char* what, tuttiComm_t comm) {
  if (result == tuttiSuccess) return {};
  return Status(code_of(static_cast<int>(result)), fmt::format("{}: {}", what, tuttiGetLastError(comm)));
}

// The place where this rank may run: a NUMA node if all of its processors belong to it or the host has one node,
// otherwise the host.
std::string place_in(const topology::Graph& own) {
  const std::string name = fmt::format("numa{}", topology::own_node());
  std::vector<std::string> all;
  for (std::size_t n = 1; n < own.nodes.size(); ++n) {
    if (own.nodes[n].kind != topology::NodeKind::kNumaNode) continue;
    all.push_back(own.path(static_cast<std::int32_t>(n)));
    if (own.nodes[n].name == name) return all.back();
  }
  return all.size() == 1 ? all.front() : std::string();
}

class Gathering {
 public:
  explicit Gathering(tuttiComm_t comm) : comm_(comm) {}
  ~Gathering() { (void)tuttiCommDestroy(comm_); }
  Gathering(const Gathering&) = delete;
  Gathering& operator=(const Gathering&) = delete;

  Result<JobGraph> run(const topology::Graph& own) {
    JobGraph job;
    if (Status s = failed(tuttiCommUserRank(comm_, &job.rank), "tuttiCommUserRank", comm_); !s.is_ok()) return s;
    if (Status s = failed(tuttiCommCount(comm_, &ranks_), "tuttiCommCount", comm_); !s.is_ok()) return s;
    const std::uint64_t host = host_number();
    std::vector<std::uint64_t> hosts(static_cast<std::size_t>(ranks_));
    Status s = failed(tuttiAllGather(&host, hosts.data(), 1, tuttiUint64, comm_, nullptr), "tuttiAllGather", comm_);
    if (!s.is_ok()) return s;
    // Of each host the first rank's alone.
    const auto first = std::find(hosts.begin(), hosts.end(), host) - hosts.begin();
    auto graphs = texts(first == job.rank ? to_json(own) : std::string());
    if (!graphs.is_ok()) return graphs.status();
    auto places = texts(place_in(own));
    if (!places.is_ok()) return places.status();
    if (job.rank > 0) return job;
    std::vector<topology::Graph> found;
    std::vector<std::uint64_t> order;
    for (std::size_t r = 0; r < hosts.size(); ++r) {
      if (std::find(order.begin(), order.end(), hosts[r]) != order.end()) continue;
      auto file = parse_json((*graphs)[r], fmt::format("rank {}'s host", r), topology::kTopologyFormat,
                             topology::kTopologyVersion);
      if (!file.is_ok()) return file.status();
      auto graph = topology::graph_of(*file);
      if (!graph.is_ok()) return graph.status();
      found.push_back(std::move(*graph));
      order.push_back(hosts[r]);
    }
    job.graph = topology::join_hosts(found);
    const std::vector<std::int32_t> roots = job.graph.hosts();
    for (std::size_t r = 0; r < hosts.size(); ++r) {
      const auto at = static_cast<std::size_t>(std::find(order.begin(), order.end(), hosts[r]) - order.begin());
      const std::int32_t node = (*places)[r].empty() ? 0 : std::max(0, found[at].find((*places)[r]));
      job.graph.ranks.push_back(roots[at] + node);
    }
    return job;
  }

 private:
  // By rank, on all ranks.
  Result<std::vector<std::string>> texts(const std::string& own) {
    const std::size_t size = own.size();
    const auto n = static_cast<std::size_t>(ranks_);
    std::vector<std::size_t> sizes(n);
    Status s = failed(tuttiAllGather(&size, sizes.data(), 1, tuttiUint64, comm_, nullptr), "tuttiAllGather", comm_);
    if (!s.is_ok()) return s;
    std::vector<std::size_t> begins(n);
    std::size_t all = 0;
    for (std::size_t r = 0; r < n; ++r) {
      begins[r] = all;
      all += sizes[r];
    }
    std::string joined(all + 1, '\0');
    s = failed(
        tuttiAllGatherV(own.data(), size, joined.data(), sizes.data(), begins.data(), tuttiUint8, comm_, nullptr),
        "tuttiAllGatherV", comm_);
    if (!s.is_ok()) return s;
    std::vector<std::string> found;
    for (std::size_t r = 0; r < n; ++r) found.push_back(joined.substr(begins[r], sizes[r]));
    return found;
  }

  tuttiComm_t comm_;
  int ranks_ = 1;
};

}  // namespace

Result<std::optional<JobGraph>> gather_job(const topology::Graph& own) {
  tuttiComm_t comm = nullptr;
  const tuttiResult_t result = tuttiCommInitEnv(&comm, nullptr);
  // No launcher: what was looked for does not matter here.
  if (result == tuttiInvalidUsage) return std::optional<JobGraph>();
  if (Status s = failed(result, "tuttiCommInitEnv", nullptr); !s.is_ok()) return s;
  auto job = Gathering(comm).run(own);
  if (!job.is_ok()) return job.status();
  return std::optional<JobGraph>(std::move(*job));
}

}  // namespace tutti::internal::tools
