// Machines described to hwloc, and this one.
#include "topology/detect.h"

#include <fmt/core.h>
#include <hwloc.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <optional>
#include <thread>

#include "catch_compat.h"
#include "made_tree.h"
#include "variable.h"

namespace tutti::internal::topology {
namespace {

using test::Variable;

Machine described(const std::string& synthetic) {
  const Variable description("HWLOC_SYNTHETIC", synthetic);
  return detect();
}

ProcessorSet range(std::size_t first, std::size_t last) {
  ProcessorSet set;
  for (std::size_t i = first; i <= last; ++i) set.set(i);
  return set;
}

const char* const kTwoPackages = "pack:2 [numa(memory=1073741824)] l3:1(size=33554432) l2:4(size=1048576) core:1 pu:2";

void check_two_packages(const Machine& m) {
  CHECK(m.processors == range(0, 15));
  CHECK(m.packages.size() == 2);
  REQUIRE(m.cores.size() == 8);
  CHECK(m.cores[1] == range(2, 3));
  REQUIRE(m.numa_nodes.size() == 2);
  CHECK(m.numa_nodes[0].number == 0);
  CHECK(m.numa_nodes[1].number == 1);
  CHECK(m.numa_nodes[1].processors == range(8, 15));
  CHECK(m.numa_nodes[1].memory_bytes == 1 << 30);
  std::size_t second = 0;
  for (const Cache& cache : m.caches) {
    if (cache.level == 2 && cache.bytes == 1 << 20 && cache.processors.count() == 2) ++second;
    if (cache.level == 3) CHECK(cache.processors.count() == 8);
  }
  CHECK(second == 8);
  // Two processors that share a cache have half of it each, whichever of them a rank may use.
  CHECK(m.level2_share_bytes(range(0, 15)) == 512 * 1024);
  CHECK(m.level2_share_bytes(range(3, 3)) == 512 * 1024);
  CHECK(m.far_nodes(range(0, 3)) == std::vector<int>{1});
  CHECK(m.far_nodes(range(7, 8)).empty());
  CHECK(m.node_of(range(0, 3)) == 0);
  CHECK(m.node_of(range(9, 9)) == 1);
  CHECK(m.node_of(range(7, 8)) == -1);
  CHECK(m.node_of(ProcessorSet()) == -1);
}

std::size_t online() {
  return static_cast<std::size_t>(::sysconf(_SC_NPROCESSORS_ONLN));
}

}  // namespace

TEST_CASE("processors as a list") {
  CHECK(list_of({}).empty());
  CHECK(list_of(range(0, 0)) == "0");
  CHECK(list_of(range(2, 5) | range(7, 7) | range(9, 10)) == "2-5,7,9-10");
  CHECK(list_of(range(kMaxProcessors - 2, kMaxProcessors - 1)) ==
        fmt::format("{}-{}", kMaxProcessors - 2, kMaxProcessors - 1));
}

TEST_CASE("packages, caches and NUMA nodes of a described machine") {
  check_two_packages(described(kTwoPackages));
}

TEST_CASE("the description in hwloc's own format is used") {
  const test::MadeTree tree;
  const std::string path = (tree.root() / "machine.xml").string();
  hwloc_topology_t topology = nullptr;
  REQUIRE(hwloc_topology_init(&topology) == 0);
  REQUIRE(hwloc_topology_set_synthetic(topology, kTwoPackages) == 0);
  REQUIRE(hwloc_topology_load(topology) == 0);
  REQUIRE(hwloc_topology_export_xml(topology, path.c_str(), 0) == 0);
  hwloc_topology_destroy(topology);
  const Variable file("HWLOC_XMLFILE", path);
  check_two_packages(detect());
  // In every case the kernel determines which processors the calling thread may use.
  CHECK(allowed_processors().count() <= online());
}

TEST_CASE("a description that cannot be read leaves this machine") {
  const Variable verbose("HWLOC_HIDE_ERRORS", "2");
  const Variable file("HWLOC_XMLFILE", "/no such file");
  CHECK(detect().processors.any());
}

TEST_CASE("a machine may report no caches") {
  const Machine m = described("pack:1 core:4 pu:1");
  CHECK(m.processors.count() == 4);
  CHECK(m.caches.empty());
  CHECK(m.level2_share_bytes(m.processors) == 0);
}

TEST_CASE("a machine may have one processor") {
  const Machine m = described("l2:1(size=2097152) pu:1");
  CHECK(m.processors == range(0, 0));
  CHECK(m.level2_share_bytes(m.processors) == 2097152);
  CHECK(m.far_nodes(m.processors).empty());
  CHECK(m.node_of(m.processors) == -1);
}

TEST_CASE("the least share counts, of the caches of processors that may be used") {
  Machine m;
  m.caches = {{1, 1, range(0, 0)},   {2, 1000, range(0, 0)}, {2, 2400, range(1, 4)},
              {2, 100, range(5, 5)}, {2, 0, range(6, 6)},    {3, 1, range(0, 6)}};
  CHECK(m.level2_share_bytes(range(0, 0)) == 1000);
  CHECK(m.level2_share_bytes(range(0, 1)) == 600);
  CHECK(m.level2_share_bytes(range(0, 5)) == 100);
  CHECK(m.level2_share_bytes(range(6, 6)) == 0);
  CHECK(m.level2_share_bytes(range(7, 9)) == 0);
}

TEST_CASE("the last-level caches are shared by those that use them, of which none has more than one") {
  Machine m;
  m.caches = {{3, 3200, range(0, 3)}, {2, 100, range(0, 0)}, {3, 3200, range(4, 7)}, {2, 500, range(8, 8)}};
  CHECK(m.last_level_share_bytes(range(0, 3), 1) == 3200);
  CHECK(m.last_level_share_bytes(range(0, 1), 2) == 1600);
  CHECK(m.last_level_share_bytes(range(0, 7), 1) == 3200);
  CHECK(m.last_level_share_bytes(range(2, 5), 2) == 3200);
  CHECK(m.last_level_share_bytes(range(0, 7), 8) == 800);
  CHECK(m.last_level_share_bytes(range(8, 9), 2) == 250);
  CHECK(m.last_level_share_bytes(range(9, 9), 2) == 0);
  CHECK(m.last_level_share_bytes(range(0, 7), 0) == 3200);
}

TEST_CASE("nodes without processors are near") {
  Machine m;
  m.numa_nodes = {{0, range(0, 3), 1}, {1, ProcessorSet(), 1}, {4, range(4, 7), 1}};
  CHECK(m.far_nodes(range(0, 0)) == std::vector<int>{4});
  CHECK(m.far_nodes(ProcessorSet()) == std::vector<int>{0, 4});
}

TEST_CASE("a thread that is pinned may use less of the same machine") {
  const Machine before = detect();
  CHECK(before.processors.count() == online());
  const ProcessorSet allowed = allowed_processors();
  CHECK((allowed & ~before.processors).none());
  CHECK((allowed & ~before.permitted).none());
  CHECK((before.permitted & ~before.processors).none());
  std::size_t one = 0;
  while (!allowed[one]) ++one;
  std::optional<ProcessorSet> pinned;
  std::optional<Machine> then;
  std::thread([&] {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(one, &set);
    if (::sched_setaffinity(0, sizeof set, &set) != 0) return;
    then = detect();
    pinned = allowed_processors();
  }).join();
  REQUIRE(pinned.has_value());
  CHECK(*pinned == range(one, one));
  CHECK(then->processors == before.processors);
  CHECK(then->permitted == before.permitted);
  CHECK(then->caches.size() == before.caches.size());
  CHECK(allowed_processors() == allowed);
}

TEST_CASE("the machine is looked at once, by whichever thread is first") {
  std::vector<const Machine*> seen(8);
  std::vector<std::thread> threads;
  for (const Machine*& mine : seen) threads.emplace_back([&mine] { mine = &this_machine(); });
  for (std::thread& thread : threads) thread.join();
  for (const Machine* machine : seen) CHECK(machine == &this_machine());
  CHECK(this_machine().processors.count() == online());
}

TEST_CASE("a child that is forked while another thread looks can look as well", "[fork]") {
  std::atomic<bool> stop{false};
  std::thread looking([&] {
    while (!stop) (void)detect();
  });
  int whole = 0;
  constexpr int kChildren = 20;
  for (int i = 0; i < kChildren; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(30);
      ::_exit(detect().processors.any() && this_machine().processors.any() ? 0 : 1);
    }
    int status = -1;
    if (child > 0 && ::waitpid(child, &status, 0) == child && status == 0) ++whole;
  }
  stop = true;
  looking.join();
  CHECK(whole == kChildren);
}

}  // namespace tutti::internal::topology
