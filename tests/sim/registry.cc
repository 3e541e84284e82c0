// The registry of transports of programs that link this: the library's, and the simulated network as "sim" or
// "sim:SEED".
#include <cerrno>
#include <vector>

#include "base/config.h"
#include "communicator/transports.h"
#include "sim/network.h"

namespace tutti::internal {
namespace {

class SimulatedNetwork final : public ThreadNetwork {
 public:
  SimulatedNetwork(std::uint64_t seed, int ranks) : network_(seed, ranks, transport::sim::Options{}) {}
  Result<std::unique_ptr<transport::Link>> link(int from, int to) override {
    auto link = network_.link(from, to);
    if (link == nullptr) return Status::system("no descriptors left for a simulated link", EMFILE);
    return link;
  }

 private:
  transport::sim::Network network_;
};

bool allow_sim(const std::optional<std::string>& option, Transports* transports) {
  const auto seed = parse_integer(option.value_or("1"), 0, INT64_MAX);
  if (!seed) return false;
  transports->network = "sim";
  transports->make_network = [seed = static_cast<std::uint64_t>(*seed)](int ranks) {
    return Result<std::unique_ptr<ThreadNetwork>>(std::make_unique<SimulatedNetwork>(seed, ranks));
  };
  return true;
}

std::vector<TransportEntry> standard_and_simulated() {
  const auto standard = standard_transports();
  std::vector<TransportEntry> entries(standard.begin(), standard.end());
  entries.push_back({"sim", "sim, sim:SEED", allow_sim});
  return entries;
}

}  // namespace

std::span<const TransportEntry> registered_transports() {
  static const std::vector<TransportEntry> entries = standard_and_simulated();
  return entries;
}

}  // namespace tutti::internal
