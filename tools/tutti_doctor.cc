// tutti doctor: what keeps a transport from working here, and the remedy.
#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "base/config.h"
#include "command.h"
#include "rdma_checks.h"
#include "rdma_loopback.h"
#include "topology/detect.h"

namespace tutti::internal::tools {
namespace {

namespace verbs = transport::verbs;

constexpr std::size_t kLoopbackBytes = 1 << 20;
constexpr std::int64_t kLoopbackMs = 30'000;

// Prints each check as soon as it has been made, and remembers failures.
class Report {
 public:
  void add(const Check& check) {
    const char* verdict = check.verdict == Verdict::kOk ? "ok" : check.verdict == Verdict::kWarn ? "warn" : "FAIL";
    std::printf("%-4s  %s: %s%s%s\n", verdict, check.what.c_str(), check.found.c_str(),
                check.remedy.empty() ? "" : ". Remedy: ", check.remedy.c_str());
    std::fflush(stdout);
    failed_ = failed_ || check.verdict == Verdict::kFail;
  }
  void add(const Checks& checks) {
    for (const Check& check : checks) add(check);
  }
  void add(const std::optional<Check>& check) {
    if (check) add(*check);
  }
  [[nodiscard]] bool failed() const { return failed_; }

 private:
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
  std::vector<std::string> devices;
  for (const verbs::Port& port : chosen) {
    if (std::find(devices.begin(), devices.end(), port.device) == devices.end()) devices.push_back(port.device);
  }
  for (const std::string& device : devices) report->add(check_dmabuf(device));
  for (const verbs::Port& port : chosen) report->add(check_loopback(port, options));
}

int run_rdma() {
  const Result<Settings> settings = settings_from_environment();
  const Result<verbs::Options> options =
      settings.is_ok() ? verbs::parse_options(settings.value().verbs) : Result<verbs::Options>(settings.status());
  if (!options.is_ok()) {
    std::fprintf(stderr, "tutti doctor rdma: %s\n", options.status().message().c_str());
    return kExitUsage;
  }
  Report report;
  report.add(check_libraries());
  report.add(check_devices({}));
  const bool has_devices = !report.failed();
  report.add(check_own_locked_memory());
  report.add(check_registration_cache());
  if (has_devices) examine_ports(options.value(), &report);
  std::printf("RDMA %s be used on this machine\n", report.failed() ? "cannot" : "can");
  return report.failed() ? kExitFailure : kExitOk;
}

}  // namespace

Run add_doctor(CLI::App& app, CLI::App** chosen) {
  CLI::App* command = app.add_subcommand("doctor", "Find out why something does not work here, and the remedy");
  command->require_subcommand(1);
  CLI::App* rdma = command->add_subcommand(
      "rdma", "RDMA: libraries, devices, limits, settings, and data over each port that would be used");
  const std::string footer =
      "One line for each check: ok, warn (works, but worse than it could) or FAIL, with the remedy.\n"
      "TUTTI_VERBS is applied. Exit status: 0 RDMA can be used, 1 it cannot, 2 invalid arguments or settings.";
  command->footer(footer);
  rdma->footer(footer);
  *chosen = command;
  return &run_rdma;
}

}  // namespace tutti::internal::tools
