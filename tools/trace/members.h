// The ranks of each communicator in the traces of all processes, and the operations that belong together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/status.h"
#include "executor/fingerprint.h"
#include "observe/trace_reader.h"

namespace tutti::internal::tools {

// Shorter delays do not matter.
inline constexpr std::int64_t kLateNs = 100'000;
inline constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max() / 4;

// The time of a host is moved by `ns` to become that of the first host.
struct HostShift {
  std::string host;
  std::int64_t ns = 0;
  // The error of the time is at most this. If it is negative, no operation connects this host with the first one, and
  // the time is that of the host's real-time clock.
  std::int64_t uncertain_ns = 0;
};

transport::Fingerprint fingerprint_of(const observe::TracedOperation& operation);
// Each rank needs data of each other one.
bool joins_all(const observe::TracedOperation& operation);

struct Member {
  const observe::TracedProcess* process = nullptr;
  const observe::TracedRank* rank = nullptr;
  std::int64_t shift_ns = 0;
};
using CommunicatorKey = std::tuple<std::uint64_t, int, int>;  // its number, ranks, and process if it has one rank
using Members = std::map<int, Member>;

std::map<CommunicatorKey, Members> communicators_of(const std::vector<observe::TracedProcess>& processes,
                                                    const std::map<std::string, HostShift>& shifts);

// Calls use(send, its member, receive, its member) for each message of which both are known. Nothing moves for one of
// 0 bytes.
template <class Use>
void for_each_message(const Members& members, Use use) {
  std::map<std::pair<int, int>, std::vector<const observe::TracedOperation*>> sends;  // by (from, to), in order
  for (const auto& [rank, member] : members) {
    for (const observe::TracedOperation& operation : member.rank->operations) {
      if (operation.kind == observe::TraceRecord::kSend && operation.count > 0)
        sends[{rank, static_cast<int>(operation.root)}].push_back(&operation);
    }
  }
  for (const auto& [rank, member] : members) {
    std::map<int, std::size_t> received;  // by sender
    for (const observe::TracedOperation& operation : member.rank->operations) {
      if (operation.kind != observe::TraceRecord::kReceive || operation.count == 0) continue;
      const int from = static_cast<int>(operation.root);
      const auto sent = sends.find({from, rank});
      const std::size_t number = received[from]++;
      if (sent == sends.end() || number >= sent->second.size()) continue;
      use(*sent->second[number], members.at(from), operation, member);
    }
  }
}

// All traces of these folders. kInvalidArgument: a folder cannot be read, or no process has left a trace in any.
Result<observe::TracedProcesses> read_all_traces(const std::vector<std::string>& folders);

// The last begin of each collective that all ranks have called.
struct Arrival {
  int last_rank = -1;
  std::int64_t last_ns = -kNever;
  std::int64_t before_ns = -kNever;  // the last but one
  int ranks = 0;
};

// By number. REQUIRES: members of one communicator.
std::map<std::uint32_t, Arrival> arrivals_of(const Members& members);

}  // namespace tutti::internal::tools
