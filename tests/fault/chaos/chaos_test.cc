// Random rounds of collectives with a failure at a random moment. In every case, each rank returns from each call in
// bounded time, with correct data or an error with the reason, and nothing is left over. A failed round prints the seed
// that repeats its script: fault_chaos --seed SEED --rounds 1.
#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <map>
#include <string>

#include "os/clock.h"
#include "os/unique_fd.h"
#include "watch.h"

namespace tutti::internal::test::chaos {
namespace {

constexpr const char* kUsage =
    "Usage: fault_chaos [--seed N] [--rounds N] [--seconds N] [--threads] [--only MISHAP] [--without MISHAP[,...]]\n"
    "                   [--slack-ms N] [--print]\n"
    "Round i has seed N + i. MISHAP: kill, stop, abort, leave, exit, absent, differ, few_files, or for --without\n"
    "tiny_buffers. --threads: only ranks of one tuttiCommInitAll. --print: what the rounds are, without running "
    "them.\n";

struct Options {
  std::uint64_t seed = 1;
  int rounds = 1'000'000;
  int seconds = 1'000'000;
  bool fingerprint = false;
  Allowed allowed;
  Limits limits;
};

bool find_kind(const std::string& name, int* kind) {
  for (*kind = 0; *kind < kMishapKinds; ++*kind) {
    if (name == name_of(static_cast<MishapKind>(*kind))) return true;
  }
  return false;
}

bool exclude(const std::string& names, Allowed* allowed) {
  for (std::size_t at = 0; at <= names.size();) {
    const std::size_t end = std::min(names.find(',', at), names.size());
    const std::string name = names.substr(at, end - at);
    int kind = 0;
    if (name == "tiny_buffers") {
      allowed->tiny_buffers = false;
    } else if (find_kind(name, &kind)) {
      allowed->kinds[kind] = false;
    } else {
      return false;
    }
    at = end + 1;
  }
  return true;
}

bool parse(int argc, char** argv, Options* options) {
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--threads") {
      options->allowed.processes = false;
      continue;
    }
    if (name == "--print") {
      options->fingerprint = true;
      continue;
    }
    if (++i == argc) return false;
    const std::string value = argv[i];
    if (name == "--seed") {
      options->seed = std::strtoull(value.c_str(), nullptr, 10);
    } else if (name == "--rounds") {
      options->rounds = std::atoi(value.c_str());
    } else if (name == "--seconds") {
      options->seconds = std::atoi(value.c_str());
    } else if (name == "--slack-ms") {
      options->limits.slack_ms = std::atoi(value.c_str());
    } else if (name == "--only") {
      if (!find_kind(value, &options->allowed.forced)) return false;
    } else if (name != "--without" || !exclude(value, &options->allowed)) {
      return false;
    }
  }
  return true;
}

bool write_text(const char* path, const char* text) {
  std::ofstream out(path);
  out << text;
  return static_cast<bool>(out.flush());
}

// A network namespace whose TCP sockets buffer at most 16 KiB; empty if the system does not permit one. The process
// itself stays in its namespace.
UniqueFd make_tiny_network() {
  UniqueFd own(::open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC));
  if (!own.valid() || ::unshare(CLONE_NEWNET) != 0) return {};
  ifreq loopback{};
  loopback.ifr_name[0] = 'l';
  loopback.ifr_name[1] = 'o';
  loopback.ifr_flags = IFF_UP | IFF_RUNNING;
  const UniqueFd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const bool made = ::ioctl(socket.get(), SIOCSIFFLAGS, &loopback) == 0 &&
                    write_text("/proc/sys/net/ipv4/tcp_wmem", "4096 8192 16384") &&
                    write_text("/proc/sys/net/ipv4/tcp_rmem", "4096 8192 16384");
  UniqueFd tiny(::open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC));
  if (::setns(own.get(), CLONE_NEWNET) != 0) std::abort();
  return made ? std::move(tiny) : UniqueFd();
}

void fingerprint(std::uint64_t seed, const std::vector<Finding>& findings) {
  for (const Finding& f : findings) {
    std::cout << (f.defect ? "FAILED " : "counted ") << "seed " << seed << " [" << f.kind << "] " << f.text << "\n";
  }
  std::cout.flush();
}

int run_rounds(const Options& options, int network) {
  std::map<std::string, int> kinds;
  const Deadline deadline = Deadline::after_ms(options.seconds * 1000LL);
  int rounds = 0;
  int failed = 0;
  for (; rounds < options.rounds && !deadline.passed(); ++rounds) {
    const std::uint64_t seed = options.seed + static_cast<std::uint64_t>(rounds);
    const Round round = draw_round(seed, options.allowed);
    if (options.fingerprint) {
      std::cout << text_of(round);
      continue;
    }
    const std::vector<Finding> findings = run_round(round, options.limits, network);
    fingerprint(seed, findings);
    bool defect = false;
    for (const Finding& f : findings) {
      ++kinds[f.kind];
      defect = defect || f.defect;
    }
    if (defect) ++failed;
  }
  std::cout << rounds << " rounds from seed " << options.seed << ", " << failed << " failed";
  for (const auto& [kind, count] : kinds) std::cout << "; " << kind << ": " << count;
  std::cout << "\n";
  return failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace tutti::internal::test::chaos

int main(int argc, char** argv) {
  using namespace tutti::internal::test::chaos;  // NOLINT: of this file
  Options options;
  if (!parse(argc, argv, &options)) {
    std::cerr << kUsage;
    return 2;
  }
  tutti::internal::UniqueFd network;
  if (options.allowed.processes && options.allowed.tiny_buffers) network = make_tiny_network();
  if (!network.valid()) {
    options.allowed.tiny_buffers = false;
    std::cout << "no rounds with tiny TCP buffers\n";
  }
  return run_rounds(options, network.get());
}
