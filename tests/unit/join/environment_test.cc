#include "join/launch/environment.h"

#include <sys/socket.h>

#include <cstdlib>
#include <future>
#include <set>

#include "catch_compat.h"
#include "join/join.h"
#include "join/launch/trace.h"
#include "os/unique_fd.h"

using namespace tutti::internal;

namespace {

constexpr const char* kAllNames[] = {"TUTTI_RANK",
                                     "TUTTI_WORLD_SIZE",
                                     "TUTTI_ROOT",
                                     "TUTTI_SECRET",
                                     "PMIX_RANK",
                                     "PMIX_NAMESPACE",
                                     "PMI_FD",
                                     "PMI_RANK",
                                     "PMI_SIZE",
                                     "HYDI_CONTROL_FD",
                                     "RANK",
                                     "WORLD_SIZE",
                                     "MASTER_ADDR",
                                     "MASTER_PORT",
                                     "TORCHELASTIC_RUN_ID",
                                     "SLURM_PROCID",
                                     "SLURM_NTASKS",
                                     "SLURM_STEP_NUM_TASKS",
                                     "SLURM_STEP_NODELIST",
                                     "SLURM_JOB_NODELIST",
                                     "SLURM_JOB_ID",
                                     "SLURM_STEP_ID",
                                     "TORCHELASTIC_RESTART_COUNT"};

// Sets a launcher's environment instead of the real one.
void pretend(const std::vector<std::pair<const char*, std::string>>& variables) {
  for (const char* name : kAllNames) ::unsetenv(name);
  for (const auto& [name, value] : variables) ::setenv(name, value.c_str(), 1);
}

Result<LaunchedJob> detect() {
  return detect_job(Settings{}, Deadline::after_ms(20'000));
}

KnownRoot known(const Result<LaunchedJob>& job) {
  INFO(job.status().message());
  REQUIRE(job.is_ok());
  REQUIRE(std::holds_alternative<KnownRoot>(job.value().root));
  return std::get<KnownRoot>(job.value().root);
}

bool names(const Result<LaunchedJob>& job, const std::string& variable) {
  return job.status().code() == Code::kInvalidUsage && job.status().message().find(variable) != std::string::npos;
}

}  // namespace

TEST_CASE("plain variables") {
  pretend({{"TUTTI_RANK", "2"}, {"TUTTI_WORLD_SIZE", "4"}, {"TUTTI_ROOT", "[::1]:4000"}});
  const auto job = detect();
  const KnownRoot root = known(job);
  CHECK(job.value().rank == 2);
  CHECK(job.value().ranks == 4);
  CHECK(root.host == "::1");
  CHECK(root.ports == std::vector<std::uint16_t>{4000});
  pretend({{"TUTTI_RANK", "0"}, {"TUTTI_WORLD_SIZE", "1"}});
  CHECK(detect().is_ok());
}

TEST_CASE("the spelling of the root's address changes neither the job nor its ports") {
  const auto plain = [](const char* root) {
    pretend({{"TUTTI_RANK", "2"}, {"TUTTI_WORLD_SIZE", "4"}, {"TUTTI_ROOT", root}});
    return known(detect()).job;
  };
  CHECK(plain("localhost:4000") == plain("127.0.0.1:4000"));
  CHECK(plain("gateway:5000") == plain("[::1]:4000"));  // a forwarded port
  const auto torchrun = [](const char* host) {
    pretend({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", host}, {"MASTER_PORT", "29500"}});
    return known(detect());
  };
  CHECK(torchrun("node1").job == torchrun("node1.cluster").job);
  CHECK(torchrun("node1").ports == torchrun("node1.cluster").ports);
}

TEST_CASE("errors name what is wrong with a launcher's variables") {
  pretend({});
  CHECK(names(detect(), "no launcher found"));
  pretend({{"TUTTI_RANK", "2"}});
  CHECK(names(detect(), "TUTTI_WORLD_SIZE is not set"));
  pretend({{"TUTTI_RANK", "4"}, {"TUTTI_WORLD_SIZE", "4"}, {"TUTTI_ROOT", "a:1"}});
  CHECK(names(detect(), "TUTTI_RANK=\"4\" is not usable: it must be from 0 to 3, as TUTTI_WORLD_SIZE is 4"));
  pretend({{"TUTTI_RANK", "1"}, {"TUTTI_WORLD_SIZE", "4"}});
  CHECK(names(detect(), "TUTTI_ROOT is not set: it must be host:port"));
  pretend({{"TUTTI_RANK", "1"}, {"TUTTI_WORLD_SIZE", "4"}, {"TUTTI_ROOT", "a"}});
  CHECK(names(detect(), "TUTTI_ROOT=\"a\" is not usable: it must be host:port"));
  pretend({{"RANK", "1"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "a"}});
  CHECK(names(detect(), "MASTER_PORT"));
  pretend({{"SLURM_PROCID", "x"}, {"SLURM_NTASKS", "4"}});
  CHECK(names(detect(), "SLURM_PROCID=\"x\""));
  pretend({{"PMI_RANK", "1"}, {"PMI_SIZE", "4"}, {"PMI_FD", "none"}});
  CHECK(names(detect(), "PMI_FD"));
}

TEST_CASE("torchrun: all ranks compute the same candidate ports, other jobs different ones") {
  const auto ports_of = [](const char* rank, const char* restart) {
    pretend({{"RANK", rank},
             {"WORLD_SIZE", "2"},
             {"MASTER_ADDR", "node1"},
             {"MASTER_PORT", "29500"},
             {"TORCHELASTIC_RUN_ID", "abc"},
             {"TORCHELASTIC_RESTART_COUNT", restart}});
    return known(detect()).ports;
  };
  const auto ports = ports_of("0", "0");
  CHECK(ports.size() == 16);
  CHECK(std::set<std::uint16_t>(ports.begin(), ports.end()).size() == 16);
  for (const std::uint16_t port : ports) CHECK((port >= 20000 && port <= 32767));
  CHECK(ports == ports_of("1", "0"));
  CHECK(ports != ports_of("1", "1"));
}

TEST_CASE("Slurm without PMIx: the first host of the step") {
  CHECK(first_slurm_host("n1") == "n1");
  CHECK(first_slurm_host("n1,n2") == "n1");
  CHECK(first_slurm_host("n[03-05,9],m2") == "n03");
  CHECK(first_slurm_host("rack[2,4]-node[007-010].ib") == "rack2-node007.ib");
  CHECK(first_slurm_host("n[03").empty());
  pretend({{"SLURM_PROCID", "5"},
           {"SLURM_NTASKS", "8"},
           {"SLURM_STEP_NUM_TASKS", "6"},
           {"SLURM_JOB_ID", "77"},
           {"SLURM_STEP_ID", "0"},
           {"SLURM_STEP_NODELIST", "n[03-05]"}});
  const auto job = detect();
  CHECK(known(job).host == "n03");
  CHECK(job.value().ranks == 6);
  CHECK(job.value().launcher == "slurm");
}

TEST_CASE("leftover variables of launchers, and which launcher applies") {
  pretend({});
  CHECK(launchers_in_environment().empty());
  pretend({{"TUTTI_RANK", "1"}, {"TUTTI_WORLD_SIZE", "4"}, {"RANK", "2"}, {"WORLD_SIZE", "4"}, {"SLURM_JOB_ID", "77"}});
  const std::vector<LauncherTrace> found = launchers_in_environment();
  REQUIRE(found.size() == 3);
  CHECK((found[0].launcher == "plain" && found[0].rank == 1 && found[0].ranks == 4 && found[0].starts_ranks));
  CHECK((found[1].launcher == "torchrun" && found[1].rank == 2));
  CHECK((found[2].launcher == "slurm" && !found[2].rank && !found[2].ranks && !found[2].starts_ranks));
  pretend({{"SLURM_PROCID", "3"}, {"SLURM_NTASKS", "6"}, {"SLURM_JOB_ID", "77"}, {"SLURM_STEP_ID", "0"}});
  REQUIRE(launchers_in_environment().size() == 1);
  CHECK(launchers_in_environment()[0].starts_ranks);
  CHECK(launchers_in_environment()[0].rank == 3);
  CHECK(launchers_in_environment()[0].ranks == 6);
}

TEST_CASE("launchers that contradict each other: the last one applies, or an error names both") {
  const auto choice = [](const std::vector<LauncherTrace>& found, const std::string& wanted = "") {
    auto chosen = choose_launcher(found, wanted);
    return chosen.is_ok() ? chosen->launcher : chosen.status().message();
  };
  LauncherTrace pmix{"pmix", "PMIX_RANK", 0, 1};
  LauncherTrace torchrun{"torchrun", "RANK, WORLD_SIZE", 1, 2};
  CHECK(choice({pmix, torchrun}).find("pmix (rank 0 of 1) by PMIX_RANK, and torchrun (rank 1 of 2) by RANK") !=
        std::string::npos);
  CHECK(choice({pmix, torchrun}).find("Set TUTTI_LAUNCHER=pmix or TUTTI_LAUNCHER=torchrun") != std::string::npos);
  CHECK(choice({pmix, torchrun}, "pmix") == "pmix");
  CHECK(choice({pmix, torchrun}, "torchrun") == "torchrun");
  CHECK(choice({pmix, torchrun}, "slurm")
            .find("TUTTI_LAUNCHER=slurm: the environment has no variables of this launcher") == 0);
  pmix.generations = 1;
  CHECK(choice({pmix, torchrun}) == "torchrun");
  torchrun.generations = 2;
  CHECK(choice({pmix, torchrun}) == "pmix");
  // The same size, other ranks.
  CHECK(choice({{"pmix", "", 0, 2}, {"torchrun", "", 1, 2}}).find("contradict") != std::string::npos);
  CHECK(choice({{"pmix", "", 1, 2}, {"torchrun", "", 1, 2}}) == "pmix");
  // A closed connection, an allocation without started ranks.
  CHECK(choice({{"pmi1", "", 0, 1, false}, {"torchrun", "", 1, 2}}) == "torchrun");
  CHECK(choice({{"torchrun", "", 1, 2}, {"slurm", "", std::nullopt, std::nullopt, false}}) == "torchrun");
  CHECK(choice({{"slurm", "", std::nullopt, std::nullopt, false}}) == "slurm");
  // Without an address: by the launcher of these ranks.
  LauncherTrace renamed{"torchrun", "", 1, 2, true, false};
  CHECK(choice({{"pmix", "", 1, 2, true, true, 1}, renamed}) == "pmix");
  CHECK(choice({{"pmix", "", 0, 1, true, true, 1}, renamed}) == "torchrun");
}

TEST_CASE("variables that this process has set itself came last") {
  pretend({{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}, {"PMI_FD", "1000"}, {"RANK", "0"}, {"WORLD_SIZE", "1"}});
  CHECK(detect().value().launcher == "torchrun");  // 1000 is not an open file
  // Open MPI's MPI_Init in a process that mpirun did not start.
  pretend({{"PMIX_RANK", "0"}, {"PMIX_NAMESPACE", "1"}, {"TUTTI_RANK", "0"}, {"TUTTI_WORLD_SIZE", "1"}});
  CHECK(detect().value().launcher == "plain");
  pretend({{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}, {"PMI_FD", "1000"}});
  CHECK(names(detect(), "PMI_FD=1000: this process has no such open file"));
}

TEST_CASE("Slurm: the error in a batch script without srun names it") {
  pretend({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}, {"SLURM_JOB_ID", "77"}, {"SLURM_JOB_NODELIST", "n[03-05]"}});
  CHECK(names(detect(), "SLURM_NTASKS is 4, but SLURM_STEP_ID is not set"));
  CHECK(names(detect(), "job 77 by sbatch or salloc, which do not start the other ranks"));
  CHECK(names(detect(), "srun ./program"));
  // Nodes without a number of tasks; an allocation without a script.
  pretend({{"SLURM_PROCID", "0"}, {"SLURM_JOB_ID", "77"}, {"SLURM_JOB_NODELIST", "n[03-05]"}});
  CHECK(names(detect(), "srun ./program"));
  pretend({{"SLURM_NTASKS", "4"}, {"SLURM_JOB_ID", "77"}, {"SLURM_JOB_NODELIST", "n[03-05]"}});
  CHECK(names(detect(), "srun ./program"));
  // One task needs no other rank.
  pretend({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}, {"SLURM_JOB_ID", "77"}});
  CHECK(detect().is_ok());
}

namespace {

// The part of a PMI-1 server that the one process of a job of one rank needs; values have at most `limit` - 1 bytes.
int serve_pmi1(int fd, int limit) {
  std::vector<std::pair<std::string, std::string>> store;
  std::string pending;
  char bytes[1024];
  for (;;) {
    const ssize_t got = ::recv(fd, bytes, sizeof bytes, 0);
    if (got <= 0) return 0;
    pending.append(bytes, static_cast<std::size_t>(got));
    for (std::size_t end = pending.find('\n'); end != std::string::npos; end = pending.find('\n')) {
      const std::string line = pending.substr(0, end);
      pending.erase(0, end + 1);
      const auto is = [&](const char* command) { return line.rfind(std::string("cmd=") + command, 0) == 0; };
      std::string answer = "cmd=unknown rc=-1";
      const std::size_t key_at = line.find("key=");
      const std::string key =
          key_at == std::string::npos ? "" : line.substr(key_at + 4, line.find(' ', key_at) - key_at - 4);
      if (is("init")) answer = "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0";
      if (is("get_maxes")) answer = "cmd=maxes kvsname_max=64 keylen_max=64 vallen_max=" + std::to_string(limit);
      if (is("get_my_kvsname")) answer = "cmd=my_kvsname kvsname=kvs_1";
      if (is("barrier_in")) answer = "cmd=barrier_out";
      if (is("put")) {
        const std::string value = line.substr(line.find("value=") + 6);
        if (static_cast<int>(value.size()) >= limit) return 1;
        store.emplace_back(key, value);
        answer = "cmd=put_result rc=0 msg=success";
      }
      if (is("get ")) {
        answer = "cmd=get_result rc=-1 msg=key_not_found";
        for (const auto& [name, stored] : store) {
          if (name == key) answer = "cmd=get_result rc=0 msg=success value=" + stored;
        }
      }
      answer += "\n";
      if (::send(fd, answer.data(), answer.size(), MSG_NOSIGNAL) < 0) return 2;
    }
  }
}

}  // namespace

TEST_CASE("PMI-1: the id passes through a store with short values") {
  const int limit = GENERATE(1024, 100);
  int fds[2] = {-1, -1};
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
  const UniqueFd servers(fds[1]);
  std::future<int> server;  // ends when `mine` is closed, which therefore is destroyed first
  UniqueFd mine(fds[0]);
  server = std::async(std::launch::async, [&] { return serve_pmi1(servers.get(), limit); });
  pretend({{"PMI_FD", std::to_string(mine.get())}, {"PMI_RANK", "0"}, {"PMI_SIZE", "1"}});
  const auto job = detect();
  INFO(job.status().message());
  REQUIRE(job.is_ok());
  CHECK(job.value().launcher == "pmi1");
  REQUIRE(std::holds_alternative<UniqueIdBytes>(job.value().root));
  const auto id = std::get<UniqueIdBytes>(job.value().root);
  Result<Job> joined = join(id, 0, 1, Settings{}, Deadline::after_ms(20'000));
  CHECK(joined.is_ok());
  mine.reset();
  CHECK(server.get() == 0);
}
