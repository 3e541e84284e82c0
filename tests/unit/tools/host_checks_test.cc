// The checks of `tutti doctor` on artificial hosts.
#include "tools/doctor/host_checks.h"

#include <sys/resource.h>
#include <sys/socket.h>

#include <cstdlib>

#include "catch_compat.h"
#include "net/socket.h"
#include "os/unique_fd.h"
#include "tools/doctor/limit_checks.h"
#include "tools/doctor/network_checks.h"

namespace tutti::internal::test {
namespace {

using namespace tools;

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::vector<net::Address> addresses(const std::vector<std::string>& texts) {
  std::vector<net::Address> result;
  for (const std::string& text : texts) result.push_back(net::parse_address(text).value());
  return result;
}

}  // namespace

TEST_CASE("doctor: sizes are short") {
  CHECK(size_text(512) == "0.5 KiB");
  CHECK(size_text(8 << 20) == "8 MiB");
  CHECK(size_text(std::uint64_t{3} << 40) == "3 TiB");
}

TEST_CASE("doctor: open files, by ranks") {
  const Settings settings;
  const auto verdict = [&](std::uint64_t soft, std::optional<std::uint64_t> hard, int ranks) {
    return check_descriptors({soft, 5}, hard, ranks, settings).verdict;
  };
  CHECK(verdict(1024, std::nullopt, 4096) == Verdict::kOk);
  CHECK(verdict(1024, 4096, 2) == Verdict::kOk);
  CHECK(verdict(300, 300, 4) == Verdict::kWarn);
  CHECK(verdict(64, 64, 4) == Verdict::kFail);
  CHECK(verdict(1024, 4096, 2000) == Verdict::kFail);
  Settings wide;
  wide.tcp_streams = 16;
  CHECK(check_descriptors({1024, 5}, 4096, 256, settings).verdict == Verdict::kOk);
  CHECK(check_descriptors({1024, 5}, 4096, 256, wide).verdict == Verdict::kFail);
  const Check check = check_descriptors({64, 5}, 64, 4, settings);
  CHECK(has(check.fix, "ulimit -n"));
  CHECK(has(check.found, "each of 4 ranks may need 36, and rank 0 for a while 68 more; the limit is 64"));
}

TEST_CASE("doctor: threads, by ranks") {
  const Settings settings;
  CHECK(check_threads("x", {std::nullopt, 9}, 4096, settings, "").verdict == Verdict::kOk);
  CHECK(check_threads("x", {100, 80}, 5, settings, "").verdict == Verdict::kOk);
  const Check check = check_threads("x", {100, 80}, 6, settings, "raise it");
  CHECK(check.verdict == Verdict::kFail);
  CHECK(check.fix == "raise it");
  CHECK(has(check.found, "24, 4 each; 80 of 100"));
}

TEST_CASE("doctor: memory of the machine and of the control group") {
  constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;
  CHECK(check_memory({16 * kGiB, 0}, {}, 8).verdict == Verdict::kOk);
  CHECK(check_memory({}, {}, 8).verdict == Verdict::kOk);
  CHECK(check_memory({kGiB, 0}, {}, 64).verdict == Verdict::kWarn);
  const Check check = check_memory({16 * kGiB, 0}, {kGiB, kGiB - (1 << 20)}, 8);
  CHECK(check.verdict == Verdict::kWarn);
  CHECK(has(check.found, "1 MiB of the control group's 1 GiB"));
  // One rank shares nothing.
  CHECK(check_memory({kGiB, kGiB}, {kGiB, 2 * kGiB}, 1).verdict == Verdict::kOk);
}

TEST_CASE("doctor: shared memory and /dev/shm are two things") {
  CHECK(check_shared_memory().verdict == Verdict::kOk);
  const Check none = check_dev_shm("/no/such/folder");
  CHECK(none.verdict == Verdict::kWarn);
  CHECK(has(none.found, "tutti needs none"));
  CHECK(has(none.fix, "mount -t tmpfs"));
  rlimit limit{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &limit) == 0);
  const rlimit before = limit;
  limit.rlim_cur = 4096;
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &limit) == 0);
  const Check small = check_shared_memory();
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &before) == 0);
  CHECK(small.verdict == Verdict::kFail);
  CHECK(has(small.found, "RLIMIT_FSIZE"));
}

TEST_CASE("doctor: processors and their time") {
  CHECK(check_processors(8, std::nullopt, 8).verdict == Verdict::kOk);
  CHECK(check_processors(8, 8000, 8).verdict == Verdict::kOk);
  CHECK(check_processors(8, 2000, 2).verdict == Verdict::kOk);
  const Check many = check_processors(2, std::nullopt, 4);
  CHECK(many.verdict == Verdict::kWarn);
  CHECK(has(many.found, "4 ranks take turns"));
  const Check stopped = check_processors(64, 1500, 2);
  CHECK(stopped.verdict == Verdict::kWarn);
  CHECK(has(stopped.found, "the time of 1.5"));
}

TEST_CASE("doctor: clocks and huge pages") {
  CHECK(check_clock("tsc").verdict == Verdict::kOk);
  CHECK(check_clock("").verdict == Verdict::kOk);
  CHECK(check_clock("hpet").verdict == Verdict::kWarn);
  CHECK(has(check_wall_clock().found, "chronyc"));
  CHECK(has(check_huge_pages("always [advise] never").found, "advise for shared memory"));
  CHECK(has(check_huge_pages("always within_size advise [never] deny force").found, "echo advise"));
  CHECK(has(check_huge_pages("").found, "none"));
}

TEST_CASE("doctor: launchers that contradict each other") {
  CHECK(check_launchers({}).verdict == Verdict::kOk);
  const LauncherTrace plain{"plain", "TUTTI_RANK", 1, 4};
  const LauncherTrace torchrun{"torchrun", "RANK", 1, 4};
  const LauncherTrace batch{"slurm", "SLURM_PROCID", std::nullopt, std::nullopt, false};
  CHECK(check_launchers({plain, torchrun, batch}).verdict == Verdict::kOk);
  LauncherTrace other = torchrun;
  other.ranks = 8;
  const Check mixed = check_launchers({plain, other});
  CHECK(mixed.verdict == Verdict::kFail);
  CHECK(has(mixed.found, "plain (rank 1 of 4) by TUTTI_RANK, and torchrun (rank 1 of 8) by RANK"));
  other.generations = 1;
  CHECK(check_launchers({plain, other}).verdict == Verdict::kOk);
  CHECK(has(check_launchers({plain, other}).found, "plain (rank 1 of 4), torchrun (rank 1 of 8); tutti uses plain"));
  CHECK(check_launchers({{"plain", "TUTTI_RANK", 4, 4}}).verdict == Verdict::kFail);
  CHECK(check_launchers({{"plain", "TUTTI_RANK", std::nullopt, 4}}).verdict == Verdict::kFail);
  CHECK(check_launchers({{"pmix", "PMIX_RANK", 3, std::nullopt}}).verdict == Verdict::kOk);
  const Check alone = check_launchers({batch});
  CHECK(alone.verdict == Verdict::kWarn);
  CHECK(has(alone.fix, "srun"));
}

TEST_CASE("doctor: settings that cannot be read, and unknown ones") {
  REQUIRE(check_settings().size() == 1);
  CHECK(check_settings()[0].verdict == Verdict::kOk);
  ::setenv("TUTTI_BIND", "socket", 1);
  ::setenv("TUTTI_SOCKET_IFNAME", "eth0", 1);
  const Checks checks = check_settings();
  ::unsetenv("TUTTI_BIND");
  ::unsetenv("TUTTI_SOCKET_IFNAME");
  REQUIRE(checks.size() == 2);
  CHECK(checks[0].verdict == Verdict::kFail);
  CHECK(has(checks[0].found, "TUTTI_BIND=\"socket\" is not none, core or numa"));
  CHECK(checks[1].verdict == Verdict::kWarn);
  CHECK(checks[1].fix == "did you mean TUTTI_INTERFACE?");
}

TEST_CASE("doctor: the addresses of a host's name") {
  const auto own = addresses({"10.1.2.3:0", "[2001:db8::5]:0"});
  const auto resolved = [&](const std::vector<std::string>& texts) {
    return check_host_name("node1", addresses(texts), own);
  };
  CHECK(resolved({"10.1.2.3:0"}).verdict == Verdict::kOk);
  CHECK(resolved({"127.0.1.1:0", "10.1.2.3:0"}).verdict == Verdict::kOk);
  const Check debian = resolved({"127.0.1.1:0"});
  CHECK(debian.verdict == Verdict::kWarn);
  CHECK(has(debian.found, "node1 is 127.0.1.1 here, loopback"));
  CHECK(has(debian.fix, "10.1.2.3"));
  // Each address once, even if another begins with it.
  CHECK(resolved({"10.1.2.30:0", "10.1.2.3:0", "10.1.2.3:0"}).found == "node1 is 10.1.2.30, 10.1.2.3");
  const Check stale = resolved({"10.9.9.9:0"});
  CHECK(stale.verdict == Verdict::kWarn);
  CHECK(has(stale.found, "at other addresses"));
  const Check none = check_host_name("node1", Status(Code::kSystemError, "cannot resolve host 'node1'"), own);
  CHECK(none.verdict == Verdict::kWarn);
  CHECK(has(none.fix, "/etc/hosts"));
  // A host without a network reaches itself.
  CHECK(check_host_name("node1", addresses({"127.0.0.1:0"}), addresses({"127.0.0.1:0"})).verdict == Verdict::kOk);
}

TEST_CASE("doctor: interfaces and ports") {
  Settings settings;
  settings.interface = "=lo";
  const Check loopback = check_interface(net::interface_addresses("=lo"), settings);
  CHECK(loopback.verdict == Verdict::kOk);
  CHECK(has(loopback.found, "lo, 127.0.0.1, as TUTTI_INTERFACE==lo says"));
  const Check none = check_interface(net::interface_addresses("=nosuch"), settings);
  CHECK(none.verdict == Verdict::kFail);
  CHECK(has(none.found,
            "no interface with an address matches \"=nosuch\" (TUTTI_INTERFACE or config.interface). Available: "));
  const net::Address own = net::parse_address("127.0.0.1:0").value();
  CHECK(check_port(own, settings, 5000).verdict == Verdict::kOk);
  // All ports of the range are taken.
  Result<UniqueFd> taken = net::listen_tcp(0, 0);
  REQUIRE(taken.is_ok());
  settings.port_low = settings.port_high = net::local_address(taken->get())->port();
  const Check port = check_port(own, settings, 5000);
  CHECK(port.verdict == Verdict::kFail);
  CHECK(has(port.found, "another process listens there; choose other ports with TUTTI_PORT_RANGE=low-high"));
}

}  // namespace tutti::internal::test
