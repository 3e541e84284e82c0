// Every algorithm of the catalog, forced, through the public interface.
#include <cstdlib>
#include <utility>

#include "algorithms/catalog.h"
#include "suites.h"

namespace tutti::internal::test {
namespace {

// Without shared memory every rank is a separate host; with it all are on one.
algorithms::World world_of(int ranks, bool shared) {
  algorithms::Hosts::Lists hosts;
  for (int r = 0; r < ranks; ++r) {
    if (r == 0 || !shared) hosts.emplace_back();
    hosts.back().push_back(r);
  }
  return {ranks, std::move(hosts)};
}

// One collective at every power of two from 1 KiB to 1 MiB.
std::vector<Spec> doublings_of(Collective collective, int ranks) {
  std::vector<Spec> specs;
  for (std::size_t bytes = 1024; bytes <= 1 << 20; bytes *= 2) {
    Spec spec;
    spec.collective = collective;
    spec.count = bytes / sizeof(float) / blocks_of(collective, ranks);
    spec.root = has_root(collective) ? ranks - 1 : 0;
    specs.push_back(spec);
  }
  return specs;
}

// The entries that the catalog lists, and some that it does not.
std::vector<algorithms::AlgorithmEntry> all_entries() {
  std::vector<algorithms::AlgorithmEntry> entries(algorithms::catalog().begin(), algorithms::catalog().end());
  for (const Collective c : {Collective::kBroadcast, Collective::kReduce, Collective::kScan, Collective::kExscan}) {
    entries.push_back(*algorithms::find(c, "chain:3"));
  }
  return entries;
}

template <class SpecsOf>
void force_all(const std::string& transports, int ranks, SpecsOf specs_of, bool compares_bits = true) {
  for (const algorithms::AlgorithmEntry& entry : all_entries()) {
    if (!entry.supports(world_of(ranks, transports == "shm"))) continue;
    const std::string forced = std::string(name_of(entry.collective)) + ":" + entry.name;
    ::setenv("TUTTI_ALGORITHM", forced.c_str(), 1);
    INFO(forced);
    require_all(run_threads, ranks, transports, specs_of(entry.collective, ranks));
    if (entry.collective == Collective::kAllReduce && compares_bits) require_same_bits(run_threads, ranks, transports);
  }
  ::unsetenv("TUTTI_ALGORITHM");
}

}  // namespace

TEST_CASE("forced algorithms over shared memory", "[shm]") {
  for (const int ranks : {2, 3, 5, 6, 8}) force_all("shm", ranks, some_of);
}

TEST_CASE("forced algorithms over the simulated network", "[sim]") {
  for (const int ranks : {2, 3, 4, 7}) force_all("sim:7", ranks, some_of);
}

TEST_CASE("forced algorithms over TCP", "[tcp]") {
  for (const int ranks : {3, 4}) force_all("tcp", ranks, some_of);
}

// For networks whose sockets have small buffers: tests/netns makes one. The sizes of buffers do not change the order of
// combination, for which the case above compares bits.
TEST_CASE("forced algorithms over small sockets", "[.small]") {
  for (const int ranks : {3, 4}) force_all("tcp", ranks, doublings_of, false);
}

TEST_CASE("forced algorithms over small sockets, other numbers of ranks", "[.small_others]") {
  for (const int ranks : {2, 5}) force_all("tcp", ranks, doublings_of, false);
}

TEST_CASE("an algorithm or a collective that does not exist is refused by name", "[shm]") {
  for (const std::string unknown :
       {"all_reduce:no_such_thing", "no_such_thing", "no_such_thing:ring", "k_nomial:1", "chain:1", "ring,"}) {
    ::setenv("TUTTI_ALGORITHM", unknown.c_str(), 1);
    tuttiComm_t comm = nullptr;
    CHECK(tuttiCommInitAll(&comm, 1, nullptr) == tuttiInvalidUsage);
    ::unsetenv("TUTTI_ALGORITHM");
    const std::string text = tuttiGetLastError(nullptr);
    INFO(text);
    CHECK(comm == nullptr);
    CHECK(text.find("TUTTI_ALGORITHM=\"" + unknown) != std::string::npos);
  }
}

}  // namespace tutti::internal::test
