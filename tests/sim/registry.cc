// The registry of transports of programs that link this: the library's, and the simulated network as "sim" or
// "sim:SEED".
#include "transport/registry.h"

#include <cerrno>
#include <vector>

#include "base/config.h"
#include "sim/network.h"
#include "transport/adapter.h"
#include "transport/tcp/costs.h"

namespace tutti::internal {
namespace {

class SimulatedNetwork final : public ThreadNetwork {
 public:
  SimulatedNetwork(std::uint64_t seed, int ranks) : network_(seed, ranks, transport::sim::Options{}) {}
  Result<std::unique_ptr<transport::Link>> link(const Ranks& ranks, int to,
                                                std::span<const transport::WakeupFd>) override {
    auto link = network_.link(ranks.rank, to);
    if (link == nullptr) return Status::system("no descriptors left for a simulated link", EMFILE);
    return link;
  }

 private:
  transport::sim::Network network_;
};

// Only for threads. Selection treats it as a network like TCP.
class SimTransport final : public PlainTransport {
 public:
  explicit SimTransport(std::uint64_t seed) : seed_(seed) {}
  [[nodiscard]] std::string_view name() const override { return "sim"; }
  [[nodiscard]] TransportCosts costs(const Ranks&) const override { return transport::tcp::costs(); }
  [[nodiscard]] std::size_t slice_bytes(const Ranks&, Collective) const override { return 512 * 1024; }
  [[nodiscard]] bool connects(const Ranks&, int, int) const override { return true; }
  [[nodiscard]] std::optional<ConnectionSpec> connects_by() const override { return std::nullopt; }
  Result<std::unique_ptr<transport::Link>> make_link(PeerConnection, const LinkOwner&, Deadline) override {
    return Status::internal("the simulated network connects threads of one process alone");
  }
  Result<std::unique_ptr<ThreadNetwork>> make_thread_network(int ranks) const override {
    return std::unique_ptr<ThreadNetwork>(std::make_unique<SimulatedNetwork>(seed_, ranks));
  }

 private:
  const std::uint64_t seed_;
};

std::shared_ptr<Transport> make_sim_transport(const std::optional<std::string>& option, bool /*asked*/) {
  const auto seed = parse_integer(option.value_or("1"), 0, INT64_MAX);
  return seed ? std::make_shared<SimTransport>(static_cast<std::uint64_t>(*seed)) : nullptr;
}

std::vector<TransportEntry> standard_and_simulated() {
  const auto standard = standard_transports();
  std::vector<TransportEntry> entries(standard.begin(), standard.end());
  entries.push_back({"sim", "sim, sim:SEED", make_sim_transport});
  return entries;
}

}  // namespace

std::span<const TransportEntry> registered_transports() {
  static const std::vector<TransportEntry> entries = standard_and_simulated();
  return entries;
}

}  // namespace tutti::internal
