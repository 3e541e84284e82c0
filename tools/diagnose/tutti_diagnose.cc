// tutti diagnose: why running jobs stand still.
#include <fmt/core.h>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "diagnosis.h"
#include "executor/fingerprint.h"
#include "observe/reader.h"
#include "tools/cli/command.h"

namespace tutti::internal::tools {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  std::vector<int> pids;  // empty: all of this host
  bool as_json = false;
};

const char* name_of(Finding::Kind kind) {
  switch (kind) {
    case Finding::Kind::kFailed: return "failed";
    case Finding::Kind::kStopped: return "stopped";
    case Finding::Kind::kDiffers: return "different calls";
    case Finding::Kind::kOperation: return "operation";
    case Finding::Kind::kBehind: return "behind";
    case Finding::Kind::kWaits: return "waits";
    case Finding::Kind::kLate: return "late";
    case Finding::Kind::kUnread: return "not read";
    case Finding::Kind::kConclusion: return "conclusion";
  }
  return "";
}

std::string id_text(std::uint64_t id) {
  return fmt::format("{:016x}", id);
}

Json json_of(const observe::SeenProcess& process) {
  Json ranks = Json::array();
  for (const observe::SeenRank& seen : process.ranks) {
    Json rank{{"communicator", id_text(seen.communicator)},
              {"rank", seen.rank},
              {"ranks", seen.ranks},
              {"operations", seen.number},
              {"inside", seen.inside}};
    if (!seen.calls.empty()) {
      const observe::SeenCall& last = seen.calls.back();
      transport::Fingerprint fingerprint{last.number, last.call, last.root, 0, 0};
      executor::set_count(&fingerprint, last.count);
      rank["last"] = {{"operation", executor::describe(executor::without_history(fingerprint))},
                      {"plan", last.plan},
                      {"begun_ms_ago", (process.read_ns - last.begun_ns) / 1'000'000}};
      if (last.waited_ms > 0) {
        rank["last"]["waited_ms"] = last.waited_ms;
        rank["last"]["waited_for"] = last.waited_for;
      }
      if (last.ended_ns) rank["last"]["ended_ms_ago"] = (process.read_ns - *last.ended_ns) / 1'000'000;
    }
    if (seen.wait) rank["waits"] = {{"ms", seen.wait->ms}, {"ranks", seen.wait->ranks}};
    if (!seen.failure.empty()) rank["failure"] = seen.failure;
    ranks.push_back(std::move(rank));
  }
  return {{"pid", process.pid},         {"host", process.host},
          {"program", process.program}, {"state", std::string(1, process.state)},
          {"version", process.version}, {"ranks", std::move(ranks)}};
}

void print_json(const std::vector<CommunicatorFindings>& all, const std::vector<observe::SeenProcess>& processes,
                bool stuck) {
  Json communicators = Json::array();
  for (const CommunicatorFindings& one : all) {
    Json findings = Json::array();
    for (const Finding& finding : one.findings) {
      findings.push_back({{"kind", name_of(finding.kind)}, {"ranks", finding.ranks}, {"text", finding.text}});
    }
    communicators.push_back(
        {{"id", id_text(one.id)}, {"ranks", one.ranks}, {"stuck", one.stuck}, {"findings", std::move(findings)}});
  }
  Json seen = Json::array();
  for (const observe::SeenProcess& process : processes) seen.push_back(json_of(process));
  const Json whole{{"format", "tutti diagnose"},
                   {"stuck", stuck},
                   {"communicators", std::move(communicators)},
                   {"processes", std::move(seen)}};
  std::printf("%s\n", whole.dump(2, ' ', false, Json::error_handler_t::replace).c_str());
}

void print(const std::vector<CommunicatorFindings>& all) {
  for (const CommunicatorFindings& one : all) {
    std::printf("communicator %s of %d rank%s%s\n", id_text(one.id).c_str(), one.ranks, one.ranks == 1 ? "" : "s",
                one.stuck ? ": stands still" : "");
    for (const Finding& finding : one.findings) {
      std::printf("  %s%s\n", finding.kind == Finding::Kind::kConclusion ? "=> " : "", finding.text.c_str());
    }
  }
}

int run(const Options& options) {
  std::vector<observe::SeenProcess> processes;
  int unreadable = 0;
  for (const int pid : options.pids) {
    auto process = observe::read_process(pid);
    if (!process.is_ok()) {
      std::fprintf(stderr, "tutti diagnose: %s\n", process.status().message().c_str());
      return kExitUsage;
    }
    processes.push_back(std::move(*process));
  }
  if (options.pids.empty()) processes = observe::read_all_processes(&unreadable);
  const std::vector<CommunicatorFindings> all = diagnose(processes);
  const bool stuck = !all.empty() && all.front().stuck;
  if (options.as_json) {
    print_json(all, processes, stuck);
  } else {
    print(all);
    if (all.empty()) std::printf("no process of this host that may be read has a communicator\n");
  }
  if (unreadable > 0) {
    std::fprintf(stderr, "tutti diagnose: %d processes of other users were not read\n", unreadable);
  }
  return stuck ? kExitFailure : kExitOk;
}

}  // namespace

Run add_diagnose(CLI::App& app, CLI::App** chosen) {
  auto options = std::make_shared<Options>();
  CLI::App* const command = app.add_subcommand("diagnose", "Say why jobs on this host stand still");
  command->add_option("PID", options->pids, "Processes to read; by default all of this host that this user may read");
  command->add_flag("--json", options->as_json, "As JSON, also with the last call of each rank");
  command->footer(
      "Reads the events that each rank writes into shared memory. It stops no process, and works on stopped ones. A\n"
      "communicator stands still if one of its ranks has waited for a second, is stopped, or has failed.\n"
      "Exit status: 0 nothing stands still, 1 a communicator stands still, 2 invalid arguments or a process that "
      "cannot "
      "be read.");
  *chosen = command;
  return [options] { return run(*options); };
}

}  // namespace tutti::internal::tools
