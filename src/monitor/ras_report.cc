#include "monitor/ras_report.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "base/status.h"
#include "base/types.h"
#include "base/version.h"
#include "executor/fingerprint.h"
#include "monitor/nccl_names.h"

namespace tutti::internal::monitor {
namespace {

using nlohmann::ordered_json;
using observe::SeenCall;
using observe::SeenProcess;
using observe::SeenRank;

constexpr int kRemoteError = static_cast<int>(Code::kRemoteError);

// In the order in which NCCL lists its own.
constexpr std::array<Collective, kCollectives> kOrder = {
    Collective::kBroadcast,      Collective::kReduce,    Collective::kAllGather, Collective::kReduceScatter,
    Collective::kAllReduce,      Collective::kAllToAll,  Collective::kGather,    Collective::kScatter,
    Collective::kBarrier,        Collective::kScan,      Collective::kExscan,    Collective::kAllGatherV,
    Collective::kReduceScatterV, Collective::kAllToAllV, Collective::kGatherV,   Collective::kScatterV};

std::int64_t ms_since(const SeenProcess& process, std::int64_t ns) {
  return std::max<std::int64_t>(0, (process.read_ns - ns) / 1'000'000);
}

// The count of the call, and its bytes. Nothing is known of calls that run together.
void add_size(const SeenCall& call, ordered_json* current) {
  if (executor::is_group({call.number, call.call, call.root, 0, 0})) return;
  constexpr std::uint32_t kTypeMask = 63;
  const auto type = static_cast<DataType>(call.call >> 5 & kTypeMask);
  const bool opaque = type == DataType::kOpaque;
  const std::uint64_t count = opaque ? call.count & kMostOpaqueCount : call.count;
  (*current)["count"] = count;
  (*current)["bytes"] = count * (opaque ? call.count >> executor::kOpaqueShift : size_of(type));
}

// What the rank is doing, or did last. Null: it has called nothing.
ordered_json current_of(const SeenProcess& process, const SeenRank& seen) {
  const SeenCall* const last = seen.last();
  ordered_json current{{"collective", nullptr}, {"seq", seen.number}};
  if (seen.agreement) {
    current["collective"] = seen.agreement->call;
    current["state"] = "waiting";
    current["since_ms"] = ms_since(process, seen.agreement->since_ns);
    current["waits_for"] = ordered_json::array();
    return current;
  }
  if (!seen.transfer && seen.number == 0) return nullptr;
  if (seen.transfer) {
    current["collective"] = seen.transfer->sends ? "Send" : "Recv";
    current["peer"] = seen.transfer->peer;
    current["bytes"] = seen.transfer->bytes;
  } else if (last != nullptr) {
    current["collective"] = nccl_name(executor::collective_of(last->call));
    add_size(*last, &current);
    current["operation"] = describe(*last);
  }
  current["state"] = seen.wait ? "waiting" : seen.inside ? "entered" : "done";
  current["since_ms"] = nullptr;
  if (seen.wait) {
    current["since_ms"] = seen.wait->ms;
  } else if (!seen.transfer && last != nullptr) {
    const auto since_ns = !seen.inside && last->ended_ns ? last->ended_ns : last->begun_ns;
    if (since_ns) current["since_ms"] = ms_since(process, *since_ns);
  }
  current["waits_for"] = seen.wait ? ordered_json(seen.wait->ranks) : ordered_json::array();
  return current;
}

ordered_json counts_of(const SeenRank& seen) {
  ordered_json counts = ordered_json::object();
  for (const Collective each : kOrder) counts[nccl_name(each)] = seen.counts[static_cast<std::size_t>(each)];
  return counts;
}

// tutti does not tell others on which device a rank's buffers are.
ordered_json name_of_rank(int rank, const std::string& host, int pid) {
  return {{"rank", rank}, {"host", host}, {"pid", pid}, {"cuda_dev", -1}, {"nvml_dev", -1}};
}

ordered_json found_rank(int rank, const FoundRank& found) {
  ordered_json json = name_of_rank(rank, found.process->host, found.process->pid);
  const bool failed = found.seen->failure.has_value();
  json["status"] = {{"init_state", 0},
                    {"async_error", failed ? kRemoteError : 0},
                    {"finalize_called", false},
                    {"destroy_flag", false},
                    {"abort_flag", false}};
  json["collective_counts"] = counts_of(*found.seen);
  json["current"] = current_of(*found.process, *found.seen);
  if (failed) json["failure"] = found.seen->failure->error;
  return json;
}

ordered_json stopped_rank(int rank, const FoundRank& found) {
  ordered_json json = name_of_rank(rank, found.process->host, found.process->pid);
  json["status"] = {{"unresponsive", true}, {"considered_dead", false}, {"stopped", true}};
  json["collective_counts"] = counts_of(*found.seen);
  json["current"] = current_of(*found.process, *found.seen);
  return json;
}

ordered_json json_of_communicator(const JobCommunicator& communicator) {
  ordered_json ranks = ordered_json::array();
  ordered_json missing = ordered_json::array();
  for (int rank = 0; rank < communicator.ranks; ++rank) {
    const auto at = communicator.found.find(rank);
    if (at == communicator.found.end()) {
      const MissingRank& unknown = communicator.missing.at(rank);
      ordered_json json = name_of_rank(rank, unknown.host, unknown.pid);
      json["status"] = {{"unresponsive", unknown.silent}, {"considered_dead", unknown.dead}, {"stopped", false}};
      missing.push_back(std::move(json));
    } else if (at->second.process->stopped()) {
      missing.push_back(stopped_rank(rank, at->second));
    } else {
      ranks.push_back(found_rank(rank, at->second));
    }
  }
  ordered_json findings = ordered_json::array();
  for (const Finding& finding : communicator.findings.findings) findings.push_back(finding.text);
  return {{"hash", fmt::format("{:#x}", communicator.id)},
          {"secondary_hash", "0x0:0x0"},
          {"size", communicator.ranks},
          {"ranks_count", ranks.size()},
          {"missing_ranks_count", missing.size()},
          {"ranks", std::move(ranks)},
          {"missing_ranks", std::move(missing)},
          {"stuck", communicator.findings.stuck},
          {"findings", std::move(findings)}};
}

std::string heading(const std::string& text) {
  return fmt::format("{}\n{}\n\n", text, std::string(text.size(), '='));
}

std::string line_of_rank(int rank, const FoundRank& found) {
  return fmt::format("  rank {} ({}, pid {} on {}): {}; {}\n", rank, found.process->program, found.process->pid,
                     found.process->host, describe_state(*found.process, *found.seen), describe_last(*found.seen));
}

}  // namespace

std::string ras_json(const JobReading& reading) {
  ordered_json communicators = ordered_json::array();
  for (const JobCommunicator& each : reading.communicators) communicators.push_back(json_of_communicator(each));
  // Readers expect a version of NCCL: tutti's report has the keys of this one.
  const ordered_json whole{{"nccl_version", "2.28.7"},
                           {"tutti_version", library_version()},
                           {"cuda_runtime_version", 0},
                           {"cuda_driver_version", 0},
                           {"timestamp", ras_time()},
                           {"communicators_count", communicators.size()},
                           {"communicators", std::move(communicators)},
                           {"ras",
                            {{"collection_time_sec", static_cast<double>(reading.took_ns / 1'000'000) / 1000},
                             {"timeouts_count", reading.unanswered}}}};
  return whole.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

std::string ras_text(const JobReading& reading, bool verbose) {
  std::set<std::string> hosts;
  for (const SeenProcess& process : reading.processes) hosts.insert(process.host);
  std::string text = fmt::format("tutti {}\n\n", library_version()) + heading("Job summary");
  text += "  Hosts  Processes  Communicators\n(total)    (total)        (total)\n";
  text += fmt::format("{:>7}  {:>9}  {:>13}\n\n", hosts.size(), reading.processes.size(), reading.communicators.size());
  text += heading("Communicators");
  for (const JobCommunicator& each : reading.communicators) {
    text += describe_findings(each.findings);
    if (verbose) {
      for (const auto& [rank, found] : each.found) text += line_of_rank(rank, found);
    }
  }
  if (reading.communicators.empty()) text += "this process has no communicator whose events can be read\n";
  return text;
}

std::string ras_time() {
  using namespace std::chrono;
  const auto now = floor<seconds>(system_clock::now());
  const auto day = floor<days>(now);
  const year_month_day date(day);
  const hh_mm_ss time(now - day);
  return fmt::format("{:04}-{:02}-{:02} {:02}:{:02}:{:02}", static_cast<int>(date.year()),
                     static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()), time.hours().count(),
                     time.minutes().count(), time.seconds().count());
}

}  // namespace tutti::internal::monitor
