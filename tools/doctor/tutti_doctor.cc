// tutti doctor: what keeps ranks, or RDMA, from working here, and the fix.
#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/config.h"
#include "base/variables.h"
#include "host_checks.h"
#include "limit_checks.h"
#include "network_checks.h"
#include "perf/harness/progress_line.h"
#include "rdma_checks.h"
#include "rdma_loopback.h"
#include "tools/cli/command.h"
#include "topology/detect.h"

namespace tutti::internal::tools {
namespace {

namespace verbs = transport::verbs;

constexpr std::size_t kLoopbackBytes = 1 << 20;
constexpr std::int64_t kLoopbackMs = 30'000;

struct Options {
  int ranks = 0;  // 0: as many as processors
  bool as_json = false;
};

constexpr int kMostRanks = 4096;

// Prints each check as soon as it has been made, or all as JSON in the end, and remembers failures.
class Report {
 public:
  explicit Report(bool as_json) : as_json_(as_json) {}

  // Before a check that takes long.
  void begin(const std::string& what) {
    if (progress_.shows()) progress_.show(fmt::format("checking {}", what));
  }
  void add(const Check& check) {
    progress_.clear();
    const bool ok = check.verdict == Verdict::kOk;
    const bool warns = check.verdict == Verdict::kWarn;
    failed_ = failed_ || (!ok && !warns);
    if (as_json_) {
      json_.push_back({{"check", check.what},
                       {"verdict", ok      ? "ok"
                                   : warns ? "warning"
                                           : "problem"},
                       {"found", check.found},
                       {"fix", check.fix}});
      return;
    }
    std::printf("%-4s  %s: %s%s%s\n",
                ok      ? "ok"
                : warns ? "warn"
                        : "FAIL",
                check.what.c_str(), check.found.c_str(), check.fix.empty() ? "" : ". Fix: ", check.fix.c_str());
    std::fflush(stdout);
  }
  void add(const Checks& checks) {
    for (const Check& check : checks) add(check);
  }
  void add(const std::optional<Check>& check) {
    if (check) add(*check);
  }
  [[nodiscard]] bool failed() const { return failed_; }
  // The last line, and the exit status.
  [[nodiscard]] int end(const std::string& line) const {
    if (as_json_) {
      const Json all = {{"format", "tutti doctor"}, {"problem", failed_}, {"checks", json_}};
      std::printf("%s\n", all.dump(2, ' ', false, Json::error_handler_t::replace).c_str());
    } else {
      std::printf("%s\n", line.c_str());
    }
    return failed_ ? kExitFailure : kExitOk;
  }

 private:
  using Json = nlohmann::ordered_json;
  const bool as_json_;
  perf::ProgressLine progress_;
  Json json_ = Json::array();
  bool failed_ = false;
};

Check check_loopback(const verbs::Port& port, const verbs::Options& asked) {
  verbs::Options options = asked;
  options.devices = {fmt::format("{}:{}", port.device, port.port)};
  const std::string what = "loopback over " + options.devices.front();
  const Result<Loopback> done = run_loopback(options, kLoopbackBytes, Deadline::after_ms(kLoopbackMs));
  if (!done.is_ok()) return {Verdict::kFail, what, done.status().message(), ""};
  char text[128];
  std::snprintf(text, sizeof text, "1 MiB each way in %.1f ms, all bytes right; connected in %.1f ms",
                done.value().transfer_ms, done.value().connect_ms);
  return {Verdict::kOk, what, text, ""};
}

// The ports that would be used; empty if none can be.
std::vector<verbs::Port> choose(const std::vector<verbs::Finding>& findings, const verbs::Options& options,
                                Report* report) {
  Result<std::vector<verbs::Port>> chosen = verbs::choose_among(findings, options);
  if (!chosen.is_ok()) {
    const bool named = !options.devices.empty();
    report->add(
        Check{Verdict::kFail, "choice", named ? chosen.status().message() : "no port can be used, see above", ""});
    return {};
  }
  std::string names;
  for (const verbs::Port& port : chosen.value()) {
    if (!names.empty()) names += ", ";
    names += fmt::format("{}:{}", port.device, port.port);
  }
  report->add(Check{Verdict::kOk, "choice", names, ""});
  return std::move(*chosen);
}

void examine_ports(const verbs::Options& options, Report* report) {
  const verbs::Roots roots;
  const Result<std::vector<verbs::Finding>> findings = verbs::find_ports(options, topology::far_nodes());
  if (!findings.is_ok()) {
    report->add(Check{Verdict::kFail, "ports", findings.status().message(), ""});
    return;
  }
  for (const verbs::Finding& finding : findings.value()) {
    // Of a device that cannot be opened all has been said.
    if (!access_trouble(roots, finding.port.device).empty()) continue;
    report->add(check_port(finding));
    report->add(check_gid(finding));
    report->add(check_mtu(roots, finding));
    report->add(check_congestion_control(roots, finding, options.traffic_class));
    report->add(check_losses(roots, finding));
  }
  const std::vector<verbs::Port> chosen = choose(findings.value(), options, report);
  for (const verbs::Port& port : chosen) {
    report->begin(fmt::format("loopback over {}:{}", port.device, port.port));
    report->add(check_loopback(port, options));
  }
}

int run_rdma(bool as_json) {
  const Result<Settings> settings = settings_from_environment();
  const Result<verbs::Options> options =
      settings.is_ok() ? verbs::parse_options(settings.value().verbs) : Result<verbs::Options>(settings.status());
  if (!options.is_ok()) {
    std::fprintf(stderr, "tutti doctor rdma: %s\n", options.status().message().c_str());
    return kExitUsage;
  }
  Report report(as_json);
  report.begin("libraries and devices");
  report.add(check_libraries());
  report.add(check_devices({}));
  const bool has_devices = !report.failed();
  report.add(check_own_locked_memory());
  report.add(check_registration_cache());
  if (has_devices) examine_ports(options.value(), &report);
  return report.end(fmt::format("RDMA {} be used on this machine", report.failed() ? "cannot" : "can"));
}

int run_host(const Options& options) {
  // check_host() reports settings that cannot be read; the other checks then use the defaults.
  const Settings settings = [] {
    Settings read;
    for (const Variable& variable : variables()) {
      const std::string name(variable.name);
      if (const auto value = environment_variable(name.c_str())) (void)apply_setting(name, name, *value, &read);
    }
    return read;
  }();
  const int usable = std::max(1, static_cast<int>(topology::allowed_processors().count()));
  const int ranks = options.ranks > 0 ? options.ranks : usable;
  Report report(options.as_json);
  report.begin("the host");
  report.add(check_host(ranks));
  report.begin("limits");
  report.add(check_limits(ranks, settings));
  report.begin("the network");
  report.add(check_network(settings));
  return report.end(fmt::format("{} rank{} {} on this host", ranks, ranks == 1 ? "" : "s",
                                report.failed() ? "cannot run" : "can run"));
}

}  // namespace

Run add_doctor(CLI::App& app, CLI::App** chosen) {
  const auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("doctor", "Check this machine, and suggest a fix for each problem");
  command->require_subcommand(0, 1);
  command->add_option("-n,--ranks", options->ranks, "Ranks of a job on this host; as many as processors by default")
      ->check(CLI::Range(1, kMostRanks));
  command->add_flag("--json", options->as_json, "As JSON");
  CLI::App* rdma = command->add_subcommand(
      "rdma", "RDMA: libraries, devices, limits, settings, and a transfer over each port that would be used");
  rdma->add_flag("--json", options->as_json, "As JSON");
  const std::string lines =
      "One line for each check: ok, warn (works, but worse than it could) or FAIL, with the fix.\n";
  command->footer(lines +
                  "Without a subcommand, this host: settings, launcher, processors, limits, memory, network.\n"
                  "Exit status: 0 no problem, 1 at least one FAIL, 2 invalid arguments.");
  rdma->footer(lines +
               "TUTTI_VERBS applies. Exit status: 0 RDMA can be used, 1 it cannot, 2 invalid arguments or settings.");
  *chosen = command;
  return [options, rdma] { return rdma->parsed() ? run_rdma(options->as_json) : run_host(*options); };
}

}  // namespace tutti::internal::tools
