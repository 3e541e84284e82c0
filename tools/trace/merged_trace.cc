#include "merged_trace.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <iterator>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "base/collectives.h"
#include "base/types.h"
#include "executor/fingerprint.h"

namespace tutti::internal::tools {
namespace {

using observe::TracedOperation;
using observe::TracedProcess;
using observe::TracedRank;
using observe::TraceRecord;

// Shorter delays do not matter.
constexpr std::int64_t kLateNs = 100'000;
constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max() / 4;

transport::Fingerprint fingerprint_of(const TracedOperation& operation) {
  transport::Fingerprint fingerprint{operation.number, operation.call, operation.root, 0, 0};
  executor::set_count(&fingerprint, operation.count);
  return executor::without_history(executor::without_plan(fingerprint));
}

// Each rank needs data of each other one.
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

// The ranks of a communicator, and the operations that belong together.
struct Member {
  const TracedProcess* process = nullptr;
  const TracedRank* rank = nullptr;
  std::int64_t shift_ns = 0;
};
using CommunicatorKey = std::tuple<std::uint64_t, int, int>;  // its number, ranks, and process if it has one rank
using Members = std::map<int, Member>;

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

// Calls use(send, its member, receive, its member) for each message of which both are known. Nothing moves for one of
// 0 bytes.
template <class Use>
void for_each_message(const Members& members, Use use) {
  std::map<std::pair<int, int>, std::vector<const TracedOperation*>> sends;  // by (from, to), in order
  for (const auto& [rank, member] : members) {
    for (const TracedOperation& operation : member.rank->operations) {
      if (operation.kind == TraceRecord::kSend && operation.count > 0)
        sends[{rank, static_cast<int>(operation.root)}].push_back(&operation);
    }
  }
  for (const auto& [rank, member] : members) {
    std::map<int, std::size_t> received;  // by sender
    for (const TracedOperation& operation : member.rank->operations) {
      if (operation.kind != TraceRecord::kReceive || operation.count == 0) continue;
      const int from = static_cast<int>(operation.root);
      const auto sent = sends.find({from, rank});
      const std::size_t number = received[from]++;
      if (sent == sends.end() || number >= sent->second.size()) continue;
      use(*sent->second[number], members.at(from), operation, member);
    }
  }
}

// Of two hosts: limits of (time to add on the second) - (time to add on the first).
struct Bounds {
  std::int64_t least = -kNever;
  std::int64_t most = kNever;
};
using HostPair = std::pair<std::string, std::string>;  // in rising order

class Alignment {
 public:
  explicit Alignment(const std::vector<TracedProcess>& processes) {
    for (const TracedProcess& process : processes)
      real_.emplace(process.machine, Real{process.host, process.realtime_offset_ns});
    for (const auto& [key, members] : communicators_of(processes, {})) {
      note_collectives(members);
      for_each_message(members, [this](const TracedOperation& send, const Member& from, const TracedOperation& receive,
                                       const Member& to) {
        note(from.process->machine, send.begun_ns, to.process->machine, receive.ended_ns);
      });
    }
  }

  std::map<std::string, HostShift> result() const {
    std::map<std::string, HostShift> shifts;
    if (real_.empty()) return shifts;
    const std::int64_t base = real_.begin()->second.offset_ns;
    for (const auto& [host, real] : real_) {
      if (shifts.count(host) != 0) continue;
      // This host's own clock, relative to the first one's; then all that operations connect with it.
      shifts[host] = {real.host, real.offset_ns - base, host == real_.begin()->first ? 0 : -1};
      std::deque<std::string> known{host};
      for (; !known.empty(); known.pop_front()) follow(known.front(), &shifts, &known);
    }
    return shifts;
  }

 private:
  // What begins on one host comes before what ends on the other.
  void note(const std::string& first_host, std::int64_t begun, const std::string& then_host, std::int64_t ended) {
    if (first_host == then_host) return;
    // begun + shift(first) <= ended + shift(then)
    Bounds& bounds = bounds_[std::minmax(first_host, then_host)];
    if (first_host < then_host) {
      bounds.least = std::max(bounds.least, begun - ended);
    } else {
      bounds.most = std::min(bounds.most, ended - begun);
    }
  }

  void note_collectives(const Members& members) {
    struct Edge {
      std::int64_t last_begin = -kNever;
      std::int64_t first_end = kNever;
    };
    std::set<std::string> hosts;
    for (const auto& [rank, member] : members) hosts.insert(member.process->machine);
    if (hosts.size() < 2) return;
    std::map<std::uint32_t, std::map<std::string, Edge>> edges;  // by operation and host
    for (const auto& [rank, member] : members) {
      for (const TracedOperation& operation : member.rank->operations) {
        if (!joins_all(operation)) continue;
        Edge& edge = edges[operation.number][member.process->machine];
        edge.last_begin = std::max(edge.last_begin, operation.begun_ns);
        edge.first_end = std::min(edge.first_end, operation.ended_ns);
      }
    }
    for (const auto& [number, of_hosts] : edges) {
      const auto& [first, own] = *of_hosts.begin();
      for (auto other = std::next(of_hosts.begin()); other != of_hosts.end(); ++other) {
        note(first, own.last_begin, other->first, other->second.first_end);
        note(other->first, other->second.last_begin, first, own.first_end);
      }
    }
  }

  void follow(const std::string& host, std::map<std::string, HostShift>* shifts, std::deque<std::string>* known) const {
    const HostShift from = shifts->at(host);
    for (const auto& [pair, bounds] : bounds_) {
      if (pair.first != host && pair.second != host) continue;
      const std::string& other = pair.first == host ? pair.second : pair.first;
      if (shifts->count(other) != 0) continue;
      const bool forward = pair.first == host;
      const std::int64_t least = forward ? bounds.least : -bounds.most;
      const std::int64_t most = forward ? bounds.most : -bounds.least;
      const std::int64_t real = real_.at(other).offset_ns - real_.at(host).offset_ns;
      HostShift shift;
      shift.host = real_.at(other).host;
      if (least > -kNever && most < kNever) {
        shift.ns = from.ns + least + (most - least) / 2;
        // If they contradict each other, the clocks do not run equally fast.
        shift.uncertain_ns = from.uncertain_ns < 0 ? -1 : from.uncertain_ns + std::abs(most - least) / 2;
      } else {
        shift.ns = from.ns + std::clamp(real, least, std::max(least, most));
        shift.uncertain_ns = -1;
      }
      shifts->emplace(other, shift);
      known->push_back(other);
    }
  }

  struct Real {
    std::string host;
    std::int64_t offset_ns = 0;
  };
  std::map<std::string, Real> real_;  // by machine
  std::map<HostPair, Bounds> bounds_;
};

// The last begin of each collective that all ranks have called.
struct Arrival {
  int last_rank = -1;
  std::int64_t last_ns = -kNever;
  std::int64_t before_ns = -kNever;  // the last but one
  int ranks = 0;
};

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

struct Close {
  void operator()(std::FILE* file) const { (void)std::fclose(file); }
};

class Writer {
 public:
  Writer(const std::vector<TracedProcess>& processes, const std::string& path)
      : processes_(processes), path_(path), file_(std::fopen(path.c_str(), "we")) {
    result_.hosts = align(processes);
  }

  Result<MergedTrace> write() {
    if (file_ == nullptr) return Status::system(path_, errno);
    const auto communicators = communicators_of(processes_, result_.hosts);
    find_span(communicators);
    std::fputs("{\"displayTimeUnit\": \"ns\", \"traceEvents\": [\n", file_.get());
    for (std::size_t i = 0; i < processes_.size(); ++i) {
      result_.dropped += processes_[i].dropped;
      name("process_name", i, 0,
           fmt::format("{} {} on {}", processes_[i].program, processes_[i].pid, processes_[i].host));
    }
    int row = 0;
    for (const auto& [key, members] : communicators) write_communicator(members, &row);
    std::fputs("\n]}\n", file_.get());
    const bool failed = std::ferror(file_.get()) != 0;
    if (std::fclose(file_.release()) != 0 || failed) return Status::system("writing " + path_, errno);
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

  template <class... Args>
  void event(fmt::format_string<Args...> format, Args&&... args) {
    if (!is_first_) std::fputs(",\n", file_.get());
    is_first_ = false;
    const std::string text = fmt::format(format, std::forward<Args>(args)...);
    (void)std::fwrite(text.data(), 1, text.size(), file_.get());
  }

  static std::string quoted(const std::string& text) {
    return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  }

  void name(const char* what, std::size_t process, int row, const std::string& text) {
    event(R"({{"ph":"M","name":"{}","pid":{},"tid":{},"args":{{"name":{}}}}})", what, process, row, quoted(text));
  }

  [[nodiscard]] double us(std::int64_t ns, const Member& member) const {
    return static_cast<double>(ns + member.shift_ns - first_ns_) / 1000;
  }

  std::size_t process_of(const Member& member) const {
    return static_cast<std::size_t>(member.process - processes_.data());
  }

  void write_communicator(const Members& members, int* row) {
    const std::map<std::uint32_t, Arrival> arrivals = arrivals_of(members);
    std::map<int, int> rows;  // by rank
    for (const auto& [rank, member] : members) {
      rows[rank] = ++*row;
      name("thread_name", process_of(member), *row,
           fmt::format("rank {} of {}, communicator {:016x}", rank, member.rank->ranks, member.rank->communicator));
      RankSummary summary{member.rank->communicator, rank, member.rank->ranks, member.process->machine,
                          member.process->pid};
      for (const TracedOperation& operation : member.rank->operations) {
        write_operation(operation, member, *row, arrivals, &summary);
      }
      result_.ranks.push_back(std::move(summary));
    }
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
      event(R"({{"ph":"X","cat":"tutti","name":"{}","pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f},)"
            R"("args":{{"peer":{},"bytes":{}}}}})",
            sends ? "send" : "recv", process_of(member), row, begun, length, static_cast<int>(operation.root),
            operation.count);
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
    event(R"({{"ph":"X","cat":"tutti","name":"{}","pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f},)"
          R"("args":{{"call":{},"number":{},"plan":{}{}}}}})",
          splits ? "split" : name_of(executor::collective_of(operation.call)), process_of(member), row, begun, length,
          quoted(call), operation.number, quoted(plan == member.rank->plans.end() ? "" : plan->second), late);
  }

  void arrow(const char* what, const Member& from, int from_row, std::int64_t from_ns, const Member& to, int to_row,
             std::int64_t to_ns) {
    ++arrows_;
    event(R"({{"ph":"s","cat":"{0}","name":"{0}","id":{1},"pid":{2},"tid":{3},"ts":{4:.3f}}})", what, arrows_,
          process_of(from), from_row, us(from_ns, from));
    event(R"({{"ph":"f","bp":"e","cat":"{0}","name":"{0}","id":{1},"pid":{2},"tid":{3},"ts":{4:.3f}}})", what, arrows_,
          process_of(to), to_row, us(to_ns, to));
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
  const std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
  MergedTrace result_;
  std::int64_t first_ns_ = 0;
  std::uint64_t arrows_ = 0;
  bool is_first_ = true;
};

}  // namespace

std::map<std::string, HostShift> align(const std::vector<TracedProcess>& processes) {
  return Alignment(processes).result();
}

Result<MergedTrace> write_merged(const std::vector<TracedProcess>& processes, const std::string& path) {
  return Writer(processes, path).write();
}

}  // namespace tutti::internal::tools
