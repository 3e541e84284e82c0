// The routes between the ranks of a graph, for the simulator.
#pragma once

#include <cstdint>
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

#include "algorithms/hosts.h"
#include "base/message_costs.h"
#include "schedule/simulate.h"
#include "topology/graph.h"

namespace tutti::internal::topology {

struct LocalCosts {
  PerByte combine_us_per_byte;
  PerByte copy_us_per_byte;
  bool operator==(const LocalCosts&) const = default;
};

struct MachineCosts {
  MessageCosts within_host;
  MessageCosts between_devices;  // GPUs of one host
  MessageCosts between_hosts;
  LocalCosts host;
  LocalCosts device;
  // After a wait for a message, the wait for a time slice, for each other rank on the processor.
  double turn_us = 0;
  double call_us = 0;  // of a rank, for each call
  // For a host's memory, which the messages between its ranks share: processors that copy at the same time are slower
  // than a single one. Each NUMA node has this rate, for the data that is received there.
  double memory_us_per_byte = 0;
  bool operator==(const MachineCosts&) const = default;
};

// Processors that ranks share.
struct Sharing {
  int cores = 0;  // of each host; 0: each rank has its own
  // All hosts are on one machine with these cores: containers, or ranks without shared memory.
  bool one_machine = false;
  bool operator==(const Sharing&) const = default;
};

// Factors on the speeds of the graph and the costs.
struct Slowed {
  std::map<int, double> ranks;
  std::map<std::int32_t, double> nodes;  // of the edge to the parent, and of a port's edge to the network; both
                                         // directions
};

// Constant after construction. Any thread. Keeps a reference to the graph.
class Routes : public schedule::Interconnect {
 public:
  // REQUIRES: graph.check(), and it has ranks. `one_host`: resources of all hosts are those of the first one: see
  // hosts_alike().
  Routes(const Graph& graph, const MachineCosts& costs, Sharing sharing, const Slowed& slowed = {},
         bool one_host = false);

  [[nodiscard]] std::size_t resources() const override { return us_per_byte_.size(); }
  [[nodiscard]] double us_per_byte(std::uint32_t resource) const override { return us_per_byte_[resource]; }
  void find_route(int from, int to, double call_bytes, schedule::Route& route) const override;
  [[nodiscard]] std::size_t processors() const override { return processor_count_; }
  [[nodiscard]] schedule::Processors processors_of(int rank) const override {
    return processors_[static_cast<std::size_t>(rank)];
  }
  [[nodiscard]] double call_us() const override { return costs_.call_us; }
  [[nodiscard]] double slowness(int rank) const override { return slowness_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] double combine_us_per_byte(int rank, double call_bytes) const override {
    return local(rank).combine_us_per_byte.at(call_bytes);
  }
  [[nodiscard]] double copy_us_per_byte(int rank, double call_bytes) const override {
    return local(rank).copy_us_per_byte.at(call_bytes);
  }

  // "host0/numa1 up", "host0/numa1 memory", "host0/eth0 out", "NVLink host0/gpu0 to host0/gpu1".
  [[nodiscard]] std::string describe(std::uint32_t resource) const;
  // The ranks of each host; hosts in the order of their first rank.
  [[nodiscard]] const algorithms::Hosts& hosts() const { return hosts_; }

 private:
  struct LinkEnd {
    std::uint32_t link = 0;
    std::uint32_t position = 0;  // among the link's nodes
  };
  [[nodiscard]] bool is_gpu(int rank) const {
    return node(graph_.ranks[static_cast<std::size_t>(rank)]).kind == NodeKind::kGpu;
  }
  [[nodiscard]] const LocalCosts& local(int rank) const { return is_gpu(rank) ? costs_.device : costs_.host; }
  void add_ranks(Sharing sharing, const Slowed& slowed);
  void add_memory();
  void share_processors(const std::vector<int>& ranks, int cores);
  void add_links();
  void choose_ports();
  [[nodiscard]] std::int32_t port_for(std::size_t rank, std::size_t turn, const std::vector<std::int32_t>& ports) const;
  [[nodiscard]] int depth_in_common(std::int32_t a, std::int32_t b) const;
  // The route from one node to another; both in one host, or both in the network.
  void go(std::int32_t from, std::int32_t to, schedule::Route& route) const;
  bool go_by_link(std::int32_t from, std::int32_t to, std::int32_t above, schedule::Route& route) const;
  bool go_among(std::int32_t from, std::int32_t to, schedule::Route& route) const;
  void climb(std::int32_t node, std::int32_t above, bool up, schedule::Route& route) const;
  void cross(const LinkEnd& from, const LinkEnd& to, schedule::Route& route) const;
  [[nodiscard]] std::uint32_t of_first_host(std::uint32_t resource) const;
  void use(std::uint32_t resource, double latency_us, schedule::Route& route) const;
  [[nodiscard]] std::int32_t meeting_of(std::int32_t a, std::int32_t b) const;
  [[nodiscard]] const Node& node(std::int32_t n) const { return graph_.nodes[static_cast<std::size_t>(n)]; }
  // Resources: kWays of them for node n, from kWays * n on; then two for each end of a link.
  static constexpr std::uint32_t kWays = 5;
  [[nodiscard]] static std::uint32_t resource_of(std::int32_t n, int way) {
    return kWays * static_cast<std::uint32_t>(n) + static_cast<std::uint32_t>(way);
  }
  // The memory of the rank's node.
  [[nodiscard]] std::int32_t memory_of(std::size_t rank) const;

  const Graph& graph_;
  MachineCosts costs_;
  bool one_host_;
  std::vector<double> us_per_byte_;
  std::vector<int> depths_;                // of nodes
  std::vector<std::uint32_t> link_first_;  // first resource of each link
  std::uint32_t link_resources_of_host_ = 1;
  std::unordered_map<std::int32_t, std::vector<LinkEnd>> link_ends_;  // by node
  std::vector<schedule::Processors> processors_;                      // by rank
  std::size_t processor_count_ = 0;
  std::vector<double> slowness_;           // by rank
  std::vector<std::int32_t> rank_hosts_;   // node of each rank's host
  std::vector<std::int32_t> rank_ports_;   // -1: its host has none
  std::vector<std::int32_t> rank_memory_;  // node whose memory it is
  algorithms::Hosts hosts_;
};

// Whether all hosts are equal including their speeds, have the same number of consecutive ranks at the same nodes, and
// lead to a single network. Then hosts that do the same at the same time take the same time.
[[nodiscard]] bool hosts_alike(const Graph& graph);

}  // namespace tutti::internal::topology
