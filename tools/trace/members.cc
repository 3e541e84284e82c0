#include "tools/trace/members.h"

#include <algorithm>
#include <iterator>

#include "base/collectives.h"
#include "base/types.h"

namespace tutti::internal::tools {

using observe::TracedOperation;
using observe::TracedProcess;
using observe::TracedRank;
using observe::TraceRecord;

transport::Fingerprint fingerprint_of(const TracedOperation& operation) {
  transport::Fingerprint fingerprint{operation.number, operation.call, operation.root, 0, 0};
  executor::set_count(&fingerprint, operation.count);
  return executor::without_history(executor::without_plan(fingerprint));
}

bool joins_all(const TracedOperation& operation) {
  if (operation.kind != TraceRecord::kCollective) return false;
  const Collective collective = executor::collective_of(operation.call);
  switch (collective) {
    case Collective::kBarrier: return true;
    case Collective::kAllReduce:
    case Collective::kAllGather:
    case Collective::kReduceScatter:
    case Collective::kAllToAll: return operation.count > 0;
    default: return false;
  }
}

std::map<CommunicatorKey, Members> communicators_of(const std::vector<TracedProcess>& processes,
                                                    const std::map<std::string, HostShift>& shifts) {
  std::map<CommunicatorKey, Members> all;
  for (const TracedProcess& process : processes) {
    for (const TracedRank& rank : process.ranks) {
      const auto shift = shifts.find(process.machine);
      all[{rank.communicator, rank.ranks, rank.ranks == 1 ? process.pid : 0}][rank.rank] = {
          &process, &rank, shift == shifts.end() ? 0 : shift->second.ns};
    }
  }
  return all;
}

Result<observe::TracedProcesses> read_all_traces(const std::vector<std::string>& folders) {
  observe::TracedProcesses traced;
  for (const std::string& folder : folders) {
    auto read = observe::read_traces(folder);
    if (!read.is_ok()) return read.status();
    std::move(read->processes.begin(), read->processes.end(), std::back_inserter(traced.processes));
    std::move(read->others.begin(), read->others.end(), std::back_inserter(traced.others));
  }
  if (!traced.processes.empty()) return traced;
  std::string why = "no process has left a trace there; set TUTTI_TRACE=DIR for the job";
  for (const std::string& other : traced.others) why = other + "\n" + why;
  return Status::invalid_argument(why);
}

std::map<std::uint32_t, Arrival> arrivals_of(const Members& members) {
  std::map<std::uint32_t, Arrival> arrivals;
  for (const auto& [rank, member] : members) {
    for (const TracedOperation& operation : member.rank->operations) {
      if (operation.kind != TraceRecord::kCollective) continue;
      Arrival& arrival = arrivals[operation.number];
      ++arrival.ranks;
      const std::int64_t begun = operation.begun_ns + member.shift_ns;
      if (begun > arrival.last_ns) {
        arrival.before_ns = std::exchange(arrival.last_ns, begun);
        arrival.last_rank = rank;
      } else {
        arrival.before_ns = std::max(arrival.before_ns, begun);
      }
    }
  }
  return arrivals;
}

}  // namespace tutti::internal::tools
