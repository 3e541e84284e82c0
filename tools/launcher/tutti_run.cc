// tutti run: starts the ranks of a program on this machine.
#include <arpa/inet.h>
#include <fmt/core.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/config.h"
#include "base/hex.h"
#include "net/auth.h"
#include "net/socket.h"
#include "os/unique_fd.h"
#include "perf/harness/help_formatter.h"
#include "perf/harness/refusal.h"
#include "rank_supervisor.h"
#include "tools/cli/command.h"

namespace tutti::internal::tools {
namespace {

struct Options {
  int ranks = 1;
  std::string bind;
  bool label = false;
  bool no_label = false;
  std::string output;
  double grace_seconds = 5;
  double timeout_seconds = 0;
  bool keep_going = false;
};

constexpr int kMostRanks = 4096;
constexpr double kMostSeconds = 1e6;

// A port of this machine, reserved while the socket is open: the kernel gives it to no process that asks for any free
// port. Rank 0 can listen on it, because both sockets set SO_REUSEADDR and this one does not listen.
struct HeldPort {
  UniqueFd socket;
  std::uint16_t port = 0;
};

Result<HeldPort> hold_port() {
  int error = 0;
  for (const int family : {AF_INET6, AF_INET}) {
    HeldPort held;
    held.socket = UniqueFd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const int on = 1;
    const int off = 0;
    ::setsockopt(held.socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    sockaddr_in6 in6{};
    sockaddr_in in{};
    in6.sin6_family = AF_INET6;
    in.sin_family = AF_INET;
    if (family == AF_INET6) ::setsockopt(held.socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    const net::Address any = family == AF_INET6 ? net::Address(reinterpret_cast<sockaddr*>(&in6), sizeof in6)
                                                : net::Address(reinterpret_cast<sockaddr*>(&in), sizeof in);
    if (::bind(held.socket.get(), any.get(), any.length()) != 0) {
      error = errno;
      continue;
    }
    const Result<net::Address> address = net::local_address(held.socket.get());
    if (!address.is_ok()) return address.status();
    held.port = address.value().port();
    return held;
  }
  return Status::system("no port for TUTTI_ROOT", error);
}

using Variables = std::vector<std::pair<std::string, std::string>>;

// This process's environment, in which the variables have these values.
std::vector<std::string> environment_with(const Variables& variables) {
  std::vector<std::string> result;
  for (char** entry = ::environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view name = std::string_view(*entry).substr(0, std::string_view(*entry).find('='));
    const bool replaced =
        std::any_of(variables.begin(), variables.end(), [&](const auto& v) { return v.first == name; });
    if (!replaced) result.emplace_back(*entry);
  }
  for (const auto& [name, value] : variables) result.push_back(fmt::format("{}={}", name, value));
  return result;
}

Result<std::string> new_secret() {
  std::array<std::uint8_t, 32> bytes{};
  if (Status s = net::random_bytes(bytes.data(), bytes.size()); !s.is_ok()) return s;
  return to_hex(bytes);
}

Status describe_job(const Options& options, std::uint16_t port, RankRun* run) {
  const std::string ranks = std::to_string(options.ranks);
  Variables variables{
      {"TUTTI_WORLD_SIZE", ranks}, {"TUTTI_LOCAL_SIZE", ranks}, {"TUTTI_ROOT", fmt::format("127.0.0.1:{}", port)}};
  if (!environment_variable("TUTTI_SECRET")) {
    Result<std::string> secret = new_secret();
    if (!secret.is_ok()) return secret.status();
    variables.emplace_back("TUTTI_SECRET", std::move(*secret));
  }
  if (!options.bind.empty()) variables.emplace_back("TUTTI_BIND", options.bind);
  // Other launchers bind their ranks by default.
  if (!environment_variable("TUTTI_AFFINITY")) variables.emplace_back("TUTTI_AFFINITY", "start");
  for (int rank = 0; rank < options.ranks; ++rank) {
    Variables all = variables;
    all.emplace_back("TUTTI_RANK", std::to_string(rank));
    all.emplace_back("TUTTI_LOCAL_RANK", std::to_string(rank));
    run->environment.push_back(environment_with(all));
  }
  return {};
}

int fail(const Status& status) {
  std::fprintf(stderr, "tutti run: %s\n", status.message().c_str());
  return kExitFailure;
}

std::int64_t to_ms(double seconds) {
  return std::llround(std::ceil(seconds * 1e3));
}

// rank0.out, rank12.err.
bool is_output(std::string_view name) {
  if (!name.starts_with("rank") || !(name.ends_with(".out") || name.ends_with(".err"))) return false;
  const std::string_view number = name.substr(4, name.size() - 8);
  return !number.empty() && number.find_first_not_of("0123456789") == std::string_view::npos;
}

// The folder, without what ranks of an earlier run have written, of which there may have been more.
Status make_folder(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return Status::system(folder, error.value());
  std::vector<std::filesystem::path> old;
  for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    if (is_output(at->path().filename().native()) && !at->is_directory(error)) old.push_back(at->path());
  }
  for (const std::filesystem::path& path : old) {
    if (!error) std::filesystem::remove(path, error);
  }
  return error ? Status::system(folder, error.value()) : Status();
}

int run_program(const Options& options, const ProgramLine& program) {
  if (program.empty()) {
    std::fprintf(stderr, "tutti run: a program to start is required; --help shows how\n");
    return kExitUsage;
  }
  RankRun run;
  run.ranks = options.ranks;
  run.program = program;
  if (options.label || options.no_label) run.labelled = options.label;
  run.folder = options.output;
  run.grace_ms = to_ms(options.grace_seconds);
  run.timeout_ms = to_ms(options.timeout_seconds);
  run.keep_going = options.keep_going;
  if (!run.folder.empty()) {
    if (const Status status = make_folder(run.folder); !status.is_ok()) return fail(status);
  }
  const Result<HeldPort> held = hold_port();
  if (!held.is_ok()) return fail(held.status());
  if (const Status status = describe_job(options, held.value().port, &run); !status.is_ok()) return fail(status);
  return RankSupervisor(run).run();
}

// take_program() takes the program, of which CLI11 knows nothing.
class RunFormatter : public perf::HelpFormatter {
 public:
  std::string make_usage(const CLI::App*, std::string) const override {
    return "Usage: tutti run -n N [OPTIONS] [--] PROGRAM [ARGUMENT...]\n";
  }
};

constexpr const char* kFooter =
    "Example: tutti run -n 4 --bind core -- build/perf/all_reduce_perf -b 8 -e 64M\n"
    "\n"
    "tutti run sets TUTTI_RANK, TUTTI_WORLD_SIZE, TUTTI_LOCAL_RANK, TUTTI_LOCAL_SIZE and TUTTI_ROOT for each rank. "
    "Unless\nthey are set, it also sets a new TUTTI_SECRET for each run, and TUTTI_AFFINITY=start: ranks on one "
    "processor separate\nin the first second of a communicator. Arguments from the program's name on go to the "
    "program, also without \"--\".\nRank 0 gets the standard input. Lines of different ranks never mix. The ranks and "
    "their children get SIGINT, SIGTERM,\nSIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2. After a failure, ranks that still run "
    "after the grace period get SIGTERM, and\nafter another grace period SIGKILL.\n\nExit status: 0 if all ranks end "
    "with 0, otherwise the status of the first failed rank; 128 + N if signal N ended that\nrank, or if this command "
    "got SIGINT, SIGTERM or SIGHUP; 124 after --timeout; 126 the program cannot be run; 127 the\nprogram is not found; "
    "1 another failure, 2 invalid arguments.";

}  // namespace

ProgramLine take_program(const CLI::App& run, std::vector<std::string>* arguments) {
  std::size_t at = 1;
  while (at < arguments->size()) {
    std::string& word = (*arguments)[at];
    if (word == "-np" || word == "--np") word = "-n";  // as mpirun and mpiexec have it
    if (word.size() < 2 || word[0] != '-' || word == "--") break;
    // No option has a name with its value in the same word, such as --ranks=2 or -n2.
    const CLI::Option* const option = run.get_option_no_throw(word);
    at += option != nullptr && option->get_items_expected_min() > 0 ? 2 : 1;
  }
  at = std::min(at, arguments->size());
  const auto begin = arguments->begin() + static_cast<std::ptrdiff_t>(at);
  const bool marked = begin != arguments->end() && *begin == "--";
  ProgramLine program(begin + (marked ? 1 : 0), arguments->end());
  arguments->erase(begin, arguments->end());
  return program;
}

namespace {

// Options that users know from mpirun, mpiexec and srun.
void refuse_launcher_options(CLI::App& command) {
  const auto refuse = [&](const char* names, const char* remedy) { perf::refuse_option(command, names, remedy); };
  refuse("-H,--host,--hosts,--hostfile,--machinefile,-N,--nodes",
         "tutti run starts ranks on this machine only; for several machines take mpirun, mpiexec, srun or torchrun");
  refuse("-x,--env,--export", "ranks get the environment of tutti run: NAME=VALUE tutti run ...");
  refuse("-l,--tag-output,--prepend-rank", "take --label");
  refuse("--oversubscribe,--allow-run-as-root,--map-by", "leave it out: there may be more ranks than processors");
  refuse("--nproc-per-node,--nproc_per_node,--ntasks", "take -n");
}

}  // namespace

Run add_run(CLI::App& app, CLI::App** chosen, const ProgramLine* program) {
  const auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("run", "Start the ranks of a program on this machine");
  command->formatter(std::make_shared<RunFormatter>());
  command->add_option("-n,--ranks", options->ranks, "Number of ranks; also -np")
      ->required()
      ->check(CLI::Range(1, kMostRanks));
  command->add_option("--bind", options->bind, "Bind each rank (TUTTI_BIND): core, numa or none")
      ->check(CLI::IsMember({"core", "numa", "none"}));
  CLI::Option* const label = command->add_flag(
      "--label", options->label, "Begin each line with its rank, as [2]; the default for several ranks on a terminal");
  command->add_flag("--no-label", options->no_label, "Never begin a line with its rank")->excludes(label);
  command
      ->add_option("-o,--output", options->output,
                   "Write the output of each rank into this folder: rank0.out, rank0.err, rank1.out, ...; files of an "
                   "earlier run are removed")
      ->excludes(label);
  command->add_option("--grace", options->grace_seconds, "Seconds for the other ranks to end after a failure")
      ->check(CLI::Range(0.0, kMostSeconds))
      ->capture_default_str();
  command->add_option("--timeout", options->timeout_seconds, "End the run after this many seconds (0: no limit)")
      ->check(CLI::Range(0.0, kMostSeconds))
      ->capture_default_str();
  command->add_flag("--keep-going", options->keep_going, "Let the other ranks continue after a failure");
  refuse_launcher_options(*command);
  command->footer(kFooter);
  *chosen = command;
  return [options, program] { return run_program(*options, *program); };
}

}  // namespace tutti::internal::tools
