#include "merged_trace.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/collectives.h"
#include "executor/fingerprint.h"
#include "tools/trace/members.h"
#include "tools/trace/predictions.h"
#include "tools/trace/trace_events.h"

namespace tutti::internal::tools {
namespace {

using observe::TracedOperation;
using observe::TracedProcess;
using observe::TracedStep;
using observe::TracedSteps;
using observe::TraceRecord;
using schedule::StepKind;

// A row of steps. Those that a rank sends to one other run one after the other; so do those that it receives from one,
// and those without another rank.
using Lane = std::pair<int, int>;  // kind of row, peer
Lane lane_of(StepKind kind, int peer) {
  return {is_local(kind) ? 2 : is_recv(kind) ? 1 : 0, peer};
}
std::string name_of(const Lane& lane) {
  if (lane.first == 2) return "local steps";
  return fmt::format("{} {}", lane.first == 0 ? "sends to" : "receives from", lane.second);
}

class Writer {
 public:
  Writer(const std::vector<TracedProcess>& processes, const std::string& path) : processes_(processes), events_(path) {
    result_.hosts = align(processes);
  }

  Result<MergedTrace> write() {
    const auto communicators = communicators_of(processes_, result_.hosts);
    find_span(communicators);
    for (std::size_t i = 0; i < processes_.size(); ++i) {
      result_.dropped += processes_[i].dropped;
      events_.name_process(i, fmt::format("{} {} on {}", processes_[i].program, processes_[i].pid, processes_[i].host));
    }
    int row = 0;
    for (const auto& [key, members] : communicators) write_communicator(members, &row);
    if (Status s = events_.finish(); !s.is_ok()) return s;
    std::stable_sort(result_.ranks.begin(), result_.ranks.end(),
                     [](const RankSummary& a, const RankSummary& b) { return a.ranks > b.ranks; });
    return std::move(result_);
  }

 private:
  void find_span(const std::map<CommunicatorKey, Members>& communicators) {
    std::int64_t last = -kNever;
    first_ns_ = kNever;
    for (const auto& [key, members] : communicators) {
      for (const auto& [rank, member] : members) {
        for (const TracedOperation& operation : member.rank->operations) {
          first_ns_ = std::min(first_ns_, operation.begun_ns + member.shift_ns);
          last = std::max(last, operation.ended_ns + member.shift_ns);
        }
        result_.operations += member.rank->operations.size();
      }
    }
    result_.span_ns = std::max<std::int64_t>(0, last - first_ns_);
  }

  [[nodiscard]] double us(std::int64_t ns, const Member& member) const {
    return static_cast<double>(ns + member.shift_ns - first_ns_) / 1000;
  }

  std::size_t process_of(const Member& member) const {
    return static_cast<std::size_t>(member.process - processes_.data());
  }

  void write_communicator(const Members& members, int* row) {
    const std::map<std::uint32_t, Arrival> arrivals = arrivals_of(members);
    Predictions predictions(members);
    std::map<int, int> rows;  // by rank
    const std::size_t steps_before = result_.steps;
    for (const auto& [rank, member] : members) {
      rows[rank] = ++*row;
      events_.name_row(
          process_of(member), *row,
          fmt::format("rank {} of {}, communicator {:016x}", rank, member.rank->ranks, member.rank->communicator));
      RankSummary summary{member.rank->communicator, rank, member.rank->ranks, member.process->machine,
                          member.process->pid};
      for (const TracedOperation& operation : member.rank->operations) {
        write_operation(operation, member, *row, arrivals, &summary);
      }
      result_.ranks.push_back(std::move(summary));
      write_steps(member, row, &predictions);
    }
    if (result_.steps > steps_before && result_.unpredicted.empty()) result_.unpredicted = predictions.why();
    for_each_message(members, [&](const TracedOperation& send, const Member& from, const TracedOperation& receive,
                                  const Member& to) {
      arrow("message", from, rows.at(from.rank->rank), send.begun_ns, to, rows.at(to.rank->rank), receive.ended_ns);
    });
    write_late(members, arrivals, rows);
  }

  void write_operation(const TracedOperation& operation, const Member& member, int row,
                       const std::map<std::uint32_t, Arrival>& arrivals, RankSummary* summary) {
    const double begun = us(operation.begun_ns, member);
    const double length = static_cast<double>(operation.ended_ns - operation.begun_ns) / 1000;
    if (operation.kind != TraceRecord::kCollective) {
      ++summary->transfers;
      const bool sends = operation.kind == TraceRecord::kSend;
      events_.slice("tutti", sends ? "send" : "recv", process_of(member), row, begun, length,
                    fmt::format(R"("peer":{},"bytes":{})", static_cast<int>(operation.root), operation.count));
      return;
    }
    ++summary->collectives;
    summary->inside_ns += operation.ended_ns - operation.begun_ns;
    const auto plan = member.rank->plans.find(operation.plan);
    const Arrival& arrival = arrivals.at(operation.number);
    std::string late;
    if (arrival.ranks == member.rank->ranks && arrival.ranks > 1) {
      const std::int64_t own = operation.begun_ns + member.shift_ns;
      const std::int64_t end = operation.ended_ns + member.shift_ns;
      const std::int64_t waiting = std::clamp<std::int64_t>(arrival.last_ns - own, 0, end - own);
      summary->waiting_ns += waiting;
      if (arrival.last_rank == member.rank->rank) {
        ++summary->last;
        summary->late_ns += arrival.last_ns - arrival.before_ns;
      }
      late =
          fmt::format(R"(,"last_rank":{},"waiting_us":{:.3f})", arrival.last_rank, static_cast<double>(waiting) / 1000);
    }
    const std::string call = executor::describe(fingerprint_of(operation));
    const bool splits = call.ends_with(", split");
    events_.slice("tutti", splits ? "split" : name_of(executor::collective_of(operation.call)), process_of(member), row,
                  begun, length,
                  fmt::format(R"("call":{},"number":{},"plan":{}{})", TraceEvents::quoted(call), operation.number,
                              TraceEvents::quoted(plan == member.rank->plans.end() ? "" : plan->second), late));
  }

  // Below the row of the operations: for each lane one row of what ran, and one of what the simulator predicts for an
  // operation that begins when the real one does.
  void write_steps(const Member& member, int* row, Predictions* predictions) {
    struct Rows {
      int ran = 0;
      int predicted = 0;
    };
    std::map<Lane, Rows> rows;
    for (const TracedSteps& steps : member.rank->steps) {
      for (const TracedStep& step : steps.steps) rows[lane_of(static_cast<StepKind>(step.kind), step.peer)];
    }
    if (rows.empty()) return;
    for (auto& [lane, own] : rows) {
      const std::string title = fmt::format("rank {}: {}", member.rank->rank, name_of(lane));
      events_.name_row(process_of(member), own.ran = ++*row, title);
      events_.name_row(process_of(member), own.predicted = ++*row, title + ", predicted");
    }
    std::map<std::uint32_t, const TracedOperation*> operations;
    for (const TracedOperation& operation : member.rank->operations) {
      if (operation.kind == TraceRecord::kCollective) operations.emplace(operation.number, &operation);
    }
    for (const TracedSteps& steps : member.rank->steps) {
      for (const TracedStep& step : steps.steps) {
        const auto kind = static_cast<StepKind>(step.kind);
        events_.slice("step", title_of(kind, step.peer), process_of(member), rows.at(lane_of(kind, step.peer)).ran,
                      us(step.begun_ns, member), static_cast<double>(step.ended_ns - step.begun_ns) / 1000,
                      fmt::format(R"("number":{},"step":{},"bytes":{})", steps.number, step.step, step.bytes));
      }
      result_.steps += steps.steps.size();
      const auto operation = operations.find(steps.number);
      if (operation == operations.end()) continue;
      const Predicted* const predicted = predictions->of(*operation->second, *member.rank, steps);
      const auto own = static_cast<std::size_t>(member.rank->rank);
      if (predicted == nullptr || !matches(steps, predicted->schedules[own])) continue;
      std::map<Lane, double> ends;  // a step of a lane may begin before the one before it has ended
      for (std::size_t i = 0; i < predicted->timing.steps[own].size(); ++i) {
        const schedule::Step& step = predicted->schedules[own].steps[i];
        const auto lane = lane_of(step.kind, step.peer);
        const auto found = rows.find(lane);
        if (found == rows.end()) continue;
        const schedule::StepTime& time = predicted->timing.steps[own][i];
        const double begin = std::max(time.begin_us, ends[lane]);
        ends[lane] = std::max(begin, time.end_us);
        events_.slice("predicted", title_of(step.kind, step.peer), process_of(member), found->second.predicted,
                      us(operation->second->begun_ns, member) + begin, ends[lane] - begin,
                      fmt::format(R"("number":{},"step":{},"algorithm":{})", steps.number, i,
                                  TraceEvents::quoted(predicted->algorithm)));
      }
    }
  }

  void arrow(const char* what, const Member& from, int from_row, std::int64_t from_ns, const Member& to, int to_row,
             std::int64_t to_ns) {
    events_.arrow(what, process_of(from), from_row, us(from_ns, from), process_of(to), to_row, us(to_ns, to));
  }

  // From a rank for which others have waited to the ends of their operations.
  void write_late(const Members& members, const std::map<std::uint32_t, Arrival>& arrivals,
                  const std::map<int, int>& rows) {
    std::map<std::uint32_t, const TracedOperation*> late;
    for (const auto& [rank, member] : members) {
      for (const TracedOperation& operation : member.rank->operations) {
        if (operation.kind != TraceRecord::kCollective) continue;
        const Arrival& arrival = arrivals.at(operation.number);
        if (arrival.last_rank == rank && arrival.ranks == member.rank->ranks && arrival.ranks > 1 &&
            arrival.last_ns - arrival.before_ns >= kLateNs) {
          late[operation.number] = &operation;
        }
      }
    }
    for (const auto& [rank, member] : members) {
      for (const TracedOperation& operation : member.rank->operations) {
        const auto found = late.find(operation.number);
        if (operation.kind != TraceRecord::kCollective || found == late.end()) continue;
        const int last = arrivals.at(operation.number).last_rank;
        if (last == rank) continue;
        const Member& from = members.at(last);
        arrow("late", from, rows.at(last), found->second->begun_ns, member, rows.at(rank), operation.ended_ns);
      }
    }
  }

  const std::vector<TracedProcess>& processes_;
  TraceEvents events_;
  MergedTrace result_;
  std::int64_t first_ns_ = 0;
};

}  // namespace

Result<MergedTrace> write_merged(const std::vector<TracedProcess>& processes, const std::string& path) {
  return Writer(processes, path).write();
}

}  // namespace tutti::internal::tools
