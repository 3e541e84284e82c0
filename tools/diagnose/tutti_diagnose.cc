// tutti diagnose: why running jobs stand still.
#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "monitor/diagnosis.h"
#include "observe/reader.h"
#include "place_options.h"
#include "places.h"
#include "tools/cli/command.h"

namespace tutti::internal::tools {
namespace {

using Json = nlohmann::ordered_json;
using monitor::CommunicatorFindings;
using monitor::Finding;

struct Options : PlaceOptions {
  bool as_json = false;
};

const char* name_of(Finding::Kind kind) {
  switch (kind) {
    case Finding::Kind::kFailed: return "failed";
    case Finding::Kind::kStopped: return "stopped";
    case Finding::Kind::kEnded: return "ended";
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
    const monitor::Member member{&process, &seen};
    Json rank{{"communicator", id_text(seen.communicator)},
              {"rank", seen.rank},
              {"ranks", seen.ranks},
              {"operations", seen.number},
              {"inside", member.inside()}};
    if (const observe::SeenCall* const last = seen.last()) {
      rank["last"] = {{"operation", monitor::describe(*last)}, {"plan", last->plan}};
      if (last->begun_ns) rank["last"]["begun_ms_ago"] = member.ms_since(*last->begun_ns);
      if (last->ended_ns) rank["last"]["ended_ms_ago"] = member.ms_since(*last->ended_ns);
      if (last->waited_ms > 0) {
        rank["last"]["waited_ms"] = last->waited_ms;
        rank["last"]["waited_for"] = last->waited_for;
      }
    }
    if (seen.agreement) {
      rank["agreement"] = {{"call", seen.agreement->call}, {"begun_ms_ago", member.ms_since(seen.agreement->since_ns)}};
    }
    if (seen.behind_since_ns) rank["behind"] = {{"begun_ms_ago", member.ms_since(*seen.behind_since_ns)}};
    if (member.transfer()) rank["transfer"] = monitor::describe(*member.transfer());
    if (const auto& wait = member.wait()) {
      rank["waits"] = {{"ms", wait->ms}, {"ranks", wait->ranks}, {"others", wait->others}};
    }
    if (seen.failure) rank["failure"] = seen.failure->error;
    ranks.push_back(std::move(rank));
  }
  return {{"pid", process.pid},         {"host", process.host},
          {"program", process.program}, {"state", std::string(1, process.state)},
          {"ended", process.ended},     {"version", process.version},
          {"ranks", std::move(ranks)}};
}

void print_json(const std::vector<CommunicatorFindings>& all, const std::vector<observe::SeenProcess>& processes,
                bool stuck) {
  Json communicators = Json::array();
  for (const CommunicatorFindings& one : all) {
    Json findings = Json::array();
    for (const Finding& finding : one.findings) {
      findings.push_back({{"kind", name_of(finding.kind)}, {"ranks", finding.ranks}, {"text", finding.text}});
      if (!finding.cause.empty()) findings.back()["cause"] = finding.cause;
    }
    communicators.push_back({{"id", id_text(one.id)},
                             {"ranks", one.ranks},
                             {"stuck", one.stuck},
                             {"failed", one.failed},
                             {"findings", std::move(findings)}});
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
  for (const CommunicatorFindings& one : all) std::printf("%s", monitor::describe_findings(one).c_str());
}

int run(const Options& options) {
  const Read read = read_places(options.places);
  const observe::SeenProcesses& seen = read.seen;
  const auto after_ms = static_cast<std::int64_t>(options.after_s * 1000);
  const std::vector<CommunicatorFindings> all = monitor::diagnose(seen.processes, after_ms);
  const bool stuck = !all.empty() && all.front().stuck;
  const bool failed = std::any_of(all.begin(), all.end(), [](const auto& one) { return one.failed; });
  if (options.as_json) {
    print_json(all, seen.processes, stuck);
  } else {
    print(all);
    if (all.empty() && seen.others.empty()) {
      std::printf("%s%s\n",
                  read.has_folders ? "no communicator has failed there" : "no process here has a communicator",
                  seen.unreadable > 0 ? "; those of other users were not read" : "");
    }
  }
  for (const std::string& why : seen.others) std::fprintf(stderr, "tutti diagnose: %s\n", why.c_str());
  if (seen.processes.empty() && !seen.others.empty() && !options.places.empty()) return kExitUsage;
  // In a folder lies what is over.
  return stuck || (failed && read.has_folders) ? kExitFailure : kExitOk;
}

}  // namespace

Run add_diagnose(CLI::App& app, CLI::App** chosen) {
  auto options = std::make_shared<Options>();
  CLI::App* const command = app.add_subcommand("diagnose", "Name the ranks for which jobs on this host wait");
  options->add_to(command);
  command->add_flag("--json", options->as_json, "As JSON, with the last call of each rank");
  command->footer(
      "Reads the events that each rank writes into shared memory; it stops no process, and works on stopped ones.\n"
      "Run it on each host, and in each container, of a job: a rank for which others wait may be in no operation "
      "itself.\n"
      "Jobs that ran with TUTTI_FLIGHT_RECORDER=DIR have left their events in DIR if they failed.\n"
      "Exit status: 0 nothing stands still, or no rank was found, 1 a communicator stands still, or has failed in a "
      "DIR, 2 invalid arguments or nothing that can be read.");
  *chosen = command;
  return [options] { return run(*options); };
}

}  // namespace tutti::internal::tools
