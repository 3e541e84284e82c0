#include "monitor/metrics.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/config.h"
#include "base/log.h"
#include "monitor/metrics_duties.h"
#include "observe/measures.h"
#include "os/kernel.h"

namespace tutti::internal::monitor {
namespace {

constexpr std::int64_t kIntervalMs = 10'000;
constexpr std::int64_t kLeastIntervalMs = 100;
constexpr std::int64_t kMostIntervalMs = 3'600'000;

struct Form {
  std::string_view prefix;
  MetricsTarget::Kind kind;
};
constexpr std::array<Form, 4> kForms{{{"prom:", MetricsTarget::Kind::kPrometheusFile},
                                      {"http:", MetricsTarget::Kind::kHttp},
                                      {"json:", MetricsTarget::Kind::kLinesFile},
                                      {"unix:", MetricsTarget::Kind::kLinesSocket}}};

Result<MetricsTarget> parse_one(const std::string& text, const std::string& whole) {
  for (const Form& form : kForms) {
    if (!text.starts_with(form.prefix) || text.size() == form.prefix.size()) continue;
    return MetricsTarget{form.kind, text.substr(form.prefix.size())};
  }
  return Status::invalid_usage(fmt::format(
      "TUTTI_METRICS=\"{}\" is not prom:DIRECTORY, http:ADDRESS, json:DIRECTORY or unix:PATH, or several of these, "
      "separated by commas",
      whole));
}

std::int64_t interval_ms() {
  const auto text = environment_variable("TUTTI_METRICS_INTERVAL_MS");
  if (!text) return kIntervalMs;
  const auto ms = parse_integer(*text, kLeastIntervalMs, kMostIntervalMs);
  if (ms) return *ms;
  log::warn(fmt::format("TUTTI_METRICS_INTERVAL_MS=\"{}\" is not a number of milliseconds from {} to {}; using {}",
                        *text, kLeastIntervalMs, kMostIntervalMs, kIntervalMs));
  return kIntervalMs;
}

Result<std::unique_ptr<Duty>> make_duty(const MetricsTarget& target, const MetricsWriter& writer) {
  // The program may change its working directory.
  std::error_code unknown;
  const std::string path = std::filesystem::absolute(target.where, unknown).string();
  switch (target.kind) {
    case MetricsTarget::Kind::kPrometheusFile: return make_prometheus_file(path, writer);
    case MetricsTarget::Kind::kLinesFile: return make_lines_file(path, writer);
    case MetricsTarget::Kind::kLinesSocket: return make_lines_socket(path, writer);
    case MetricsTarget::Kind::kHttp: break;
  }
  return make_metrics_server(target.where);
}

}  // namespace

Result<std::vector<MetricsTarget>> parse_metrics(const std::string& text) {
  std::vector<MetricsTarget> targets;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    auto target = parse_one(text.substr(begin, end - begin), text);
    if (!target.is_ok()) return target.status();
    targets.push_back(std::move(*target));
    begin = end + 1;
  }
  return targets;
}

Duties make_metrics() {
  Duties duties;
  const auto text = environment_variable("TUTTI_METRICS");
  if (!text) return duties;
  auto targets = parse_metrics(*text);
  if (!targets.is_ok()) {
    log::warn(targets.status().message() + ". There will be no metrics");
    return duties;
  }
  MetricsWriter writer;
  writer.pid = ::getpid();
  writer.interval_ms = interval_ms();
  std::array<char, 256> host{};
  (void)os::kernel().gethostname(host.data(), host.size() - 1);
  writer.host = host.data();
  for (const MetricsTarget& target : *targets) {
    auto duty = make_duty(target, writer);
    if (duty.is_ok()) {
      duties.push_back(std::move(*duty));
    } else {
      log::warn(fmt::format("TUTTI_METRICS: {}: {}", target.where, duty.status().message()));
    }
  }
  return duties;
}

}  // namespace tutti::internal::monitor
