#include "base/variables.h"

#include <algorithm>
#include <array>
#include <vector>

#include "base/similar.h"

namespace tutti::internal {
namespace {

constexpr auto kVariables = std::to_array<Variable>({
    {"TUTTI_TRANSPORTS", "shm,verbs,tcp", "allowed transports; rank 0's value holds for all ranks"},
    {"TUTTI_INTERFACE", "(by route)", "network interface: prefix eth, exactly =eth0, all but ^lo"},
    {"TUTTI_PORT_RANGE", "(any port)", "low-high for every listening socket"},
    {"TUTTI_TCP_STREAMS", "(1 within a machine, 2 between)", "sockets per pair of ranks, 1 to 16"},
    {"TUTTI_VERBS", "(chosen)", "RDMA devices and their settings"},
    {"TUTTI_TIMEOUT_MS", "1800000", "longest wait without progress in an operation, in milliseconds"},
    {"TUTTI_INIT_TIMEOUT_MS", "300000", "longest time for the whole initialisation, in milliseconds"},
    {"TUTTI_NETWORK_TIMEOUT_MS", "(the longer of both timeouts)",
     "a host that acknowledges nothing for so many milliseconds counts as gone"},
    {"TUTTI_WAIT_NOTICE_MS", "10000", "after so many milliseconds a wait is logged; 0: never"},
    {"TUTTI_ALGORITHM", "(predicted to be fastest)",
     "an algorithm, or COLLECTIVE:ALGORITHM,...; rank 0's holds for all"},
    {"TUTTI_SCHEDULES", "(none)", "files of algorithms of one's own, with commas between them"},
    {"TUTTI_TOPOLOGY", "(none)", "a file of `tutti topo --json`: where ranks are; rank 0's holds for all"},
    {"TUTTI_TUNING", "(none)", "a file of `tutti tune`: what is fastest here; rank 0's holds for all"},
    {"TUTTI_AFFINITY", "own",
     "keep, own, start or move: places no threads, its own, also callers at first, also callers always"},
    {"TUTTI_PROGRESS_THREADS", "1", "threads of a process that run queued operations, 1 to 64"},
    {"TUTTI_CROSS_MEMORY", "auto", "auto, always or never: whether ranks read each other's memory"},
    {"TUTTI_CHECK", "off", "strict or off: whether all ranks compare each call; rank 0's holds for all"},
    {"TUTTI_LOG", "warn", "error, warn, info or debug"},
    {"TUTTI_BIND", "none", "none, core or numa: to which processors the calling thread is bound"},
    {"TUTTI_LAUNCHER", "(the one that started the process)", "plain, pmix, pmi1, torchrun or slurm: whose job to join"},
    {"TUTTI_LOCAL_RANK", "(by launcher)", "for TUTTI_BIND: number of this process among those of its machine"},
    {"TUTTI_LOCAL_SIZE", "(by launcher)", "for TUTTI_BIND: how many processes of the job its machine has"},
    {"TUTTI_LIBRARY", "(searched)", "the Python module's: the path of libtutti.so"},
    {"TUTTI_RANK", "(by launcher)", "rank of this process, without a launcher"},
    {"TUTTI_WORLD_SIZE", "(by launcher)", "number of ranks, without a launcher"},
    {"TUTTI_ROOT", "(by launcher)", "host:port where rank 0 listens for the others, without a launcher"},
    {"TUTTI_SECRET", "(none)", "a secret that a process must know to join"},
    {"TUTTI_MPI", "on", "the MPI binding's: off gives every call to the MPI library"},
    {"TUTTI_MPI_AFTER", "32", "the MPI binding's: how many collectives of a communicator go to the MPI library first"},
    {"TUTTI_MPI_NONBLOCKING", "65536", "the MPI binding's: bytes from which nonblocking calls are taken"},
    {"TUTTI_MPI_SUMMARY", "0", "the MPI binding's: 1 writes at the end how many calls were taken"},
});

// How other libraries call it, or people remember it, where the letters do not tell.
struct Alias {
  std::string_view name;
  std::string_view meant;
};
constexpr auto kAliases = std::to_array<Alias>({
    {"TUTTI_SOCKET_IFNAME", "TUTTI_INTERFACE"},
    {"TUTTI_IFNAME", "TUTTI_INTERFACE"},
    {"TUTTI_IB_HCA", "TUTTI_VERBS"},
    {"TUTTI_ALGO", "TUTTI_ALGORITHM"},
    {"TUTTI_DEBUG", "TUTTI_LOG"},
    {"TUTTI_LOG_LEVEL", "TUTTI_LOG"},
    {"TUTTI_SIZE", "TUTTI_WORLD_SIZE"},
    {"TUTTI_RANKS", "TUTTI_WORLD_SIZE"},
    {"TUTTI_NRANKS", "TUTTI_WORLD_SIZE"},
    {"TUTTI_NUM_RANKS", "TUTTI_WORLD_SIZE"},
    {"TUTTI_MASTER_ADDR", "TUTTI_ROOT"},
    {"TUTTI_ROOT_ADDR", "TUTTI_ROOT"},
    {"TUTTI_TOPO_FILE", "TUTTI_TOPOLOGY"},
});

}  // namespace

std::span<const Variable> variables() {
  return kVariables;
}

bool is_variable(std::string_view name) {
  return std::any_of(kVariables.begin(), kVariables.end(), [&](const Variable& v) { return v.name == name; });
}

std::string_view probably_meant(std::string_view name) {
  const auto* const alias =
      std::find_if(kAliases.begin(), kAliases.end(), [&](const Alias& each) { return each.name == name; });
  if (alias != kAliases.end()) return alias->meant;
  // Of the short names behind the prefix, which is alike in all, few letters may be wrong.
  constexpr std::string_view kPrefix = "TUTTI_";
  const auto behind = [&](std::string_view text) {
    return text.starts_with(kPrefix) ? text.substr(kPrefix.size()) : text;
  };
  std::vector<std::string_view> names;
  for (const Variable& each : kVariables) names.push_back(behind(each.name));
  const std::string_view similar = most_similar(behind(name), names);
  const auto* const meant = std::find_if(kVariables.begin(), kVariables.end(),
                                         [&](const Variable& each) { return behind(each.name) == similar; });
  return meant == kVariables.end() ? std::string_view() : meant->name;
}

}  // namespace tutti::internal
