// tutti status: what a running job tells about itself.
#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/config.h"
#include "monitor/listener.h"
#include "net/address.h"
#include "os/clock.h"
#include "ras_client.h"
#include "tools/cli/command.h"

namespace tutti::internal::tools {
namespace {

constexpr int kPort = 28028;
constexpr int kTimeoutS = 5;
constexpr std::int64_t kSpareMs = 6000;  // for the answer to arrive
constexpr std::int64_t kTryMs = 1000;    // for the answer to a command, at first
constexpr std::int64_t kUnlimitedMs = std::int64_t{1} << 40;

struct Options {
  std::string host;
  int port = 0;
  std::string path;
  int timeout_s = -1;  // -1: not given
  std::string format;
  bool verbose = false;
  bool monitor = false;
  std::string groups;
};

// The options, else TUTTI_RAS_ADDR, else NCCL's address.
Result<monitor::ListenAddress> address_of(const Options& options) {
  if (!options.path.empty()) return monitor::parse_listen_address("unix:" + options.path);
  monitor::ListenAddress address{"localhost", kPort, ""};
  const auto variable = environment_variable("TUTTI_RAS_ADDR");
  if (variable && (options.host.empty() || options.port == 0)) {
    auto set = monitor::parse_listen_address(*variable);
    if (!set.is_ok()) return set.status().with_context("TUTTI_RAS_ADDR");
    const bool named = !options.host.empty() || options.port != 0;
    if (!named) return set;
    if (set->port != 0) address = *set;
  }
  if (!options.host.empty()) address.host = options.host;
  if (options.port != 0) address.port = static_cast<std::uint16_t>(options.port);
  return address;
}

bool print(std::string_view text) {
  return std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
}

Status set_options(const Options& options, RasClient* client, Deadline deadline) {
  if (options.timeout_s >= 0) {
    const std::string line = fmt::format("TIMEOUT {}\n", options.timeout_s);
    if (Status s = client->command(line, "OK", deadline); !s.is_ok()) return s;
  }
  if (options.format.empty()) return {};
  return client->command(fmt::format("SET FORMAT {}\n", options.format), "OK", deadline);
}

// A connection to a process that has answered. One that was being stopped may have answered the greeting alone.
Result<RasClient> prepared(const Options& options, const std::vector<net::Address>& addresses, Deadline deadline) {
  for (std::int64_t try_ms = kTryMs;; try_ms *= 2) {
    auto client = RasClient::greet(addresses, deadline);
    if (!client.is_ok()) return client;
    const Deadline soon = Deadline::after_ms(try_ms);
    const Status set = set_options(options, &*client, soon.at_ns() < deadline.at_ns() ? soon : deadline);
    if (set.is_ok()) return client;
    if (set.code() != Code::kTimeout || deadline.passed()) return set;
  }
}

Status ask(const Options& options, const std::vector<net::Address>& addresses) {
  const int timeout_s = options.timeout_s < 0 ? kTimeoutS : options.timeout_s;
  const std::int64_t timeout_ms = timeout_s == 0 ? kUnlimitedMs : timeout_s * std::int64_t{1000};
  auto client = prepared(options, addresses, Deadline::after_ms(timeout_ms));
  if (!client.is_ok()) return client.status();
  const Deadline deadline = Deadline::after_ms(timeout_ms + kSpareMs);
  if (!options.monitor) return client->listen(options.verbose ? "VERBOSE STATUS\n" : "STATUS\n", deadline, print);
  const std::string groups = options.groups.empty() ? "" : " " + options.groups;
  if (Status s = client->command(fmt::format("MONITOR{}\n", groups), "OK", deadline); !s.is_ok()) return s;
  std::fprintf(stderr, "tutti status: one line for each event of the job; Ctrl-C ends this\n");
  return client->follow(print);
}

int run(const Options& options) {
  auto address = address_of(options);
  if (!address.is_ok()) {
    std::fprintf(stderr, "tutti status: %s\n", address.status().message().c_str());
    return kExitUsage;
  }
  auto addresses = monitor::addresses_of(*address);
  const Status status = addresses.is_ok() ? ask(options, *addresses) : addresses.status();
  if (status.is_ok()) return kExitOk;
  const std::string where =
      address->host.empty() ? "unix:" + address->path : fmt::format("{}:{}", address->host, address->port);
  std::fprintf(stderr,
               "tutti status: %s: %s. Start the job with TUTTI_RAS_ADDR=%s, and this command on one of its hosts\n",
               where.c_str(), status.message().c_str(), where.c_str());
  return kExitFailure;
}

}  // namespace

Run add_status(CLI::App& app, CLI::App** chosen) {
  auto options = std::make_shared<Options>();
  CLI::App* const command = app.add_subcommand("status", "Ask a running job for its status");
  // -h is the host, as in ncclras.
  command->set_help_flag("--help", "Print this help message and exit");
  auto* const host =
      command->add_option("-h,--host", options->host, "Host; by default that of TUTTI_RAS_ADDR, or localhost");
  auto* const port =
      command->add_option("-p,--port", options->port, "Port; by default that of TUTTI_RAS_ADDR, or 28028")
          ->check(CLI::Range(1, 65535));
  command->add_option("--unix", options->path, "Path of a Unix socket, in place of a host and a port")
      ->excludes(host)
      ->excludes(port);
  command
      ->add_option("-t,--timeout", options->timeout_s,
                   "Seconds in which the processes of the job must answer; 0: no limit; by default 5")
      ->check(CLI::Range(0, 1'000'000));
  command->add_option("-f,--format", options->format, "text or json")
      ->check(CLI::IsMember({"text", "json"}, CLI::ignore_case));
  command->add_flag("-v,--verbose", options->verbose, "With a line for each rank");
  auto* const groups =
      command->add_option("-m,--monitor", options->groups, "Print events as they come; by default lifecycle");
  groups->expected(0, 1)->type_name("lifecycle|trace|all");
  command->footer(
      "The job must have been started with TUTTI_RAS_ADDR, for example TUTTI_RAS_ADDR=localhost:28028. One of its\n"
      "processes on that host answers, for the communicators that it has a rank in. Under the name ncclras this "
      "command\n"
      "takes the place of NCCL's.\n"
      "Exit status: 0 the job has answered, 1 it has not, or output cannot be written, 2 invalid arguments.");
  *chosen = command;
  return [options, groups] {
    options->monitor = groups->count() > 0;
    return run(*options);
  };
}

}  // namespace tutti::internal::tools
