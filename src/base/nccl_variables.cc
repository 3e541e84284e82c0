#include "base/nccl_variables.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <vector>

namespace tutti::internal {
namespace {

constexpr std::size_t kMostNamed = 8;  // in one line

struct Counterpart {
  std::string_view nccl;
  std::string_view tutti;
};
// docs/from_nccl.md says more of each.
constexpr auto kCounterparts = std::to_array<Counterpart>({
    {"NCCL_ALGO", "TUTTI_ALGORITHM"},
    {"NCCL_COMM_ID", "TUTTI_ROOT"},
    {"NCCL_DEBUG", "TUTTI_LOG"},
    {"NCCL_IB_DISABLE", "TUTTI_TRANSPORTS"},
    {"NCCL_IB_GID_INDEX", "TUTTI_VERBS"},
    {"NCCL_IB_HCA", "TUTTI_VERBS"},
    {"NCCL_IB_QPS_PER_CONNECTION", "TUTTI_VERBS"},
    {"NCCL_IB_SL", "TUTTI_VERBS"},
    {"NCCL_IB_TC", "TUTTI_VERBS"},
    {"NCCL_IB_TIMEOUT", "TUTTI_VERBS"},
    {"NCCL_NET", "TUTTI_TRANSPORTS"},
    {"NCCL_NSOCKS_PERTHREAD", "TUTTI_TCP_STREAMS"},
    {"NCCL_P2P_DISABLE", "TUTTI_CROSS_MEMORY"},
    {"NCCL_P2P_LEVEL", "TUTTI_CROSS_MEMORY"},
    {"NCCL_RAS_ADDR", "TUTTI_RAS_ADDR"},
    {"NCCL_SHM_DISABLE", "TUTTI_TRANSPORTS"},
    {"NCCL_SOCKET_IFNAME", "TUTTI_INTERFACE"},
    {"NCCL_SOCKET_NTHREADS", "TUTTI_PROGRESS_THREADS"},
    {"NCCL_TOPO_FILE", "TUTTI_TOPOLOGY"},
    {"NCCL_TUNER_CONFIG_FILE", "TUTTI_TUNING"},
    {"NCCL_TUNER_PLUGIN", "TUTTI_TUNING"},
});
// Variables that locate NCCL and do not configure it.
constexpr std::array<std::string_view, 9> kOfBuilds = {"NCCL_HOME",         "NCCL_INC",  "NCCL_INCLUDE_DIR",
                                                       "NCCL_INCLUDE_DIRS", "NCCL_LIB",  "NCCL_LIB_DIR",
                                                       "NCCL_LIBRARY",      "NCCL_ROOT", "NCCL_ROOT_DIR"};

bool is_ignored(std::string_view name) {
  return name.starts_with("NCCL_") && !name.starts_with("NCCL_TESTS_") && !name.starts_with("NCCL_VERSION") &&
         std::find(kOfBuilds.begin(), kOfBuilds.end(), name) == kOfBuilds.end();
}

std::string joined(const std::vector<std::string>& parts) {
  std::string text;
  for (std::size_t i = 0; i < std::min(parts.size(), kMostNamed); ++i) text += (i == 0 ? "" : ", ") + parts[i];
  return parts.size() <= kMostNamed ? text : fmt::format("{} and {} more", text, parts.size() - kMostNamed);
}

}  // namespace

std::string_view counterpart_of(std::string_view nccl_variable) {
  const auto* const found = std::find_if(kCounterparts.begin(), kCounterparts.end(),
                                         [&](const Counterpart& each) { return each.nccl == nccl_variable; });
  return found == kCounterparts.end() ? std::string_view() : found->tutti;
}

std::string ignored_nccl_variables() {
  std::vector<std::string> names;
  for (char** at = ::environ; at != nullptr && *at != nullptr; ++at) {
    const std::string_view entry = *at;
    const std::string_view name = entry.substr(0, entry.find('='));
    if (is_ignored(name) && name.size() + 1 < entry.size()) names.emplace_back(name);
  }
  if (names.empty()) return {};
  std::sort(names.begin(), names.end());
  std::vector<std::string> replaced;
  for (const std::string& name : names) {
    const std::string_view own = counterpart_of(name);
    if (!own.empty()) replaced.push_back(fmt::format("{} for {}", own, name));
  }
  return fmt::format(
      "the environment sets {}, which {} NCCL's and {} no effect on tutti. {}docs/from_nccl.md lists "
      "tutti's settings for NCCL's",
      joined(names), names.size() == 1 ? "is" : "are", names.size() == 1 ? "has" : "have",
      replaced.empty() ? "" : fmt::format("Set {}; ", joined(replaced)));
}

}  // namespace tutti::internal
