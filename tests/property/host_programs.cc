// Programs that depend on the hosts of their ranks: proven on many divisions of the ranks into hosts, with every root;
// and incorrect ones, which are rejected on the divisions where they are wrong.
#include <string>
#include <utility>
#include <vector>

#include "algorithms/loaded.h"
#include "algorithms/prove.h"
#include "catch_compat.h"

namespace tutti::internal::algorithms {
namespace {

const AlgorithmEntry& entry_of(const std::string& name, const std::string& collective, const std::string& rest) {
  const std::string text = R"x({"format": "tutti schedule", "version": 1, "name": ")x" + name +
                           R"x(", "collective": ")x" + collective + "\", " + rest + "}";
  auto file = parse_json(text, name, kScheduleFormat, kScheduleVersion);
  INFO(file.status().message());
  REQUIRE(file.is_ok());
  auto program = Program::parse(std::move(*file));
  INFO(program.status().message());
  REQUIRE(program.is_ok());
  const AlgorithmEntry* const entry = keep(std::move(*program));
  REQUIRE(entry != nullptr);
  return *entry;
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

// Empty if it is proven with every root.
std::string error_on(const AlgorithmEntry& entry, const World& world) {
  for (const int root : roots_to_prove(entry, world)) {
    const auto proof = prove(entry, world, root);
    if (!proof.is_ok()) return proof.status().message();
  }
  return {};
}

// All ranks of a host combine at its first rank, these in a ring, and it sends the result to its host. For hosts of any
// sizes.
const char* const kLeaders = R"x("chunks": "hosts", "do": [
  {"if": "local_rank > 0", "do": [
    {"send": 0, "count": "hosts", "to": "rank_of(host, 0)"},
    {"recv": 0, "count": "hosts", "from": "rank_of(host, 0)"}],
  "else": [
    {"for": "l", "from": 1, "below": "local_ranks", "do": [
      {"recv_reduce": 0, "count": "hosts", "from": "rank_of(host, l)", "final": "hosts == 1 && l == local_ranks - 1"}]},
    {"let": "next", "be": "rank_of((host + 1) % hosts, 0)"},
    {"let": "before", "be": "rank_of((host - 1) % hosts, 0)"},
    {"for": "k", "from": 1, "below": "hosts", "do": [
      {"send": "(host - k) % hosts", "to": "next"},
      {"recv_reduce": "(host - k - 1) % hosts", "from": "before", "final": "k == hosts - 1"}]},
    {"for": "k", "from": 0, "below": "hosts - 1", "do": [
      {"send": "(host - k) % hosts", "to": "next"},
      {"recv": "(host - k - 1) % hosts", "from": "before"}]},
    {"for": "l", "from": 1, "below": "local_ranks", "do": [
      {"send": 0, "count": "hosts", "to": "rank_of(host, l)"}]}]}])x";

// From the root to one rank of each host, which forwards it.
const char* const kHeads = R"x("do": [
  {"let": "head", "be": "(host == host_of(root)) * local_rank_of(root)"},
  {"if": "local_rank == head",
   "do": [
    {"if": "rank == root",
     "do": [{"for": "k", "from": 1, "below": "hosts", "do": [{"send": 0, "to": "rank_of((host + k) % hosts, 0)"}]}],
     "else": [{"recv": 0, "from": "root"}]},
    {"for": "k", "from": 1, "below": "local_ranks", "do": [
      {"send": 0, "to": "rank_of(host, (head + k) % local_ranks)"}]}],
   "else": [{"recv": 0, "from": "rank_of(host, head)"}]}])x";

// Chains: of each host's ranks to its first one, of those to the first host's, and back. In the order of ranks if they
// are numbered host by host.
const char* const kChains = R"x("order": "ranks", "do": [
  {"if": "local_rank < local_ranks - 1", "do": [
    {"recv_reduce": 0, "from": "rank_of(host, local_rank + 1)", "final": "rank == rank_of(0, 0) && hosts == 1"}]},
  {"if": "local_rank > 0", "do": [{"send": 0, "to": "rank_of(host, local_rank - 1)"}], "else": [
    {"if": "host < hosts - 1", "do": [{"recv_reduce": 0, "from": "rank_of(host + 1, 0)", "final": "host == 0"}]},
    {"if": "host > 0", "do": [
      {"send": 0, "to": "rank_of(host - 1, 0)"}, {"recv": 0, "from": "rank_of(host - 1, 0)"}]},
    {"if": "host < hosts - 1", "do": [{"send": 0, "to": "rank_of(host + 1, 0)"}]}]},
  {"if": "local_rank > 0", "do": [{"recv": 0, "from": "rank_of(host, local_rank - 1)"}]},
  {"if": "local_rank < local_ranks - 1", "do": [{"send": 0, "to": "rank_of(host, local_rank + 1)"}]}])x";

const char* const kInOrder = R"x("when": "hosts_in_order", )x";

TEST_CASE("programs that depend on hosts are proven on many divisions, with every root") {
  for (const AlgorithmEntry* entry :
       {&entry_of("leaders", "all_reduce", kLeaders), &entry_of("heads", "broadcast", kHeads),
        &entry_of("chains", "all_reduce", kInOrder + std::string(kChains))}) {
    INFO(entry->name);
    CHECK(program_of(*entry)->uses_hosts());
    std::size_t divisions = 0;
    std::size_t unequal = 0;
    std::size_t not_in_order = 0;
    for (int ranks = 1; ranks <= 26; ++ranks) {
      for (const World& world : worlds_to_prove(*entry, ranks)) {
        CHECK(error_on(*entry, world) == "");
        // For any division: no test of the library has proven it.
        CHECK(!proven_by_tests(*entry, world, 0));
        if (!world.hosts.empty()) ++divisions;
        if (!world.hosts.are_equal()) ++unequal;
        if (!world.hosts.are_in_order()) ++not_in_order;
      }
    }
    CHECK(divisions >= 100);
    CHECK(unequal >= 40);
    CHECK((not_in_order >= 80) == (entry->keeps_order == nullptr));
    CHECK(prove_samples(*entry).message() == "");
  }
}

TEST_CASE("programs that depend on hosts are tried with one host, one rank per host, and several ranks per host") {
  const AlgorithmEntry& entry = entry_of("leaders", "all_reduce", kLeaders);
  const auto shown = [&](int ranks, const Hosts& hosts) {
    for (const World& world : worlds_to_prove(entry, ranks)) {
      if (world.ranks == ranks && world.hosts == hosts) return true;
    }
    return false;
  };
  CHECK(shown(1, {}));
  CHECK(shown(4, {}));
  CHECK(shown(4, {{0}, {1}, {2}, {3}}));
  CHECK(shown(4, {{0, 1}, {2, 3}}));
  CHECK(shown(4, {{0, 2}, {1, 3}}));
  CHECK(shown(4, {{0}, {1, 2, 3}}));
  CHECK(shown(6, {{0, 1, 2}, {3}, {4, 5}}));
  // A program that does not ask for hosts does the same on all divisions.
  const AlgorithmEntry& flat = entry_of("star", "broadcast", R"x("do": [
    {"if": "rank == root", "do": [{"for": "k", "from": 1, "below": "ranks", "do": [
      {"send": 0, "to": "(root + k) % ranks"}]}], "else": [{"recv": 0, "from": "root"}]}])x");
  CHECK(worlds_to_prove(flat, 8).size() == 1);
  CHECK(error_on(flat, {6, {{0, 1, 2}, {3}, {4, 5}}}) == "");
}

TEST_CASE("incorrect programs that depend on hosts are refused") {
  int number = 0;
  const auto refused = [&](const std::string& collective, const std::string& program, const std::string& from,
                           const std::string& to) {
    const AlgorithmEntry& entry = entry_of("wrong" + std::to_string(++number), collective, replaced(program, from, to));
    INFO(from << " became " << to);
    CHECK(!prove_samples(entry).is_ok());
  };
  // A wrong host, a missing rank, a chunk that comes twice, a mark that is too early, or too late.
  refused("all_reduce", kLeaders, R"x("to": "rank_of(host, 0)")x", R"x("to": "rank_of(0, 0)")x");
  refused("all_reduce", kLeaders, R"x("below": "local_ranks")x", R"x("below": "local_ranks - 1")x");
  refused("all_reduce", kLeaders, R"x("below": "local_ranks")x", R"x("below": "most_local_ranks")x");
  refused("all_reduce", kLeaders, "(host - k - 1) % hosts", "(host - k) % hosts");
  refused("all_reduce", kLeaders, "hosts == 1 && l ==", "l ==");
  refused("all_reduce", kLeaders, R"x("final": "k == hosts - 1")x", R"x("final": "k == hosts")x");
  refused("all_reduce", kLeaders, "rank_of((host - 1) % hosts, 0)", "rank_of((host + 1) % hosts, 0)");
  refused("broadcast", kHeads, "(host == host_of(root)) * local_rank_of(root)", "local_rank_of(root)");
  refused("broadcast", kHeads, "(host == host_of(root)) * local_rank_of(root)", "0");
  refused("broadcast", kHeads, "(host + k) % hosts", "k");
  // Not in the order of ranks, if ranks are distributed round-robin.
  const std::string error = prove_samples(entry_of("dealt", "all_reduce", kChains)).message();
  INFO(error);
  CHECK(error.find("which are not the next ranks") != std::string::npos);
  CHECK(error.find("hosts 2,2, of the ranks 0 2, 1 3") != std::string::npos);
}

// A program that is correct on some hosts is refused for others, and no earlier proof changes that.
TEST_CASE("a proof on some hosts is not a proof on others") {
  // It assumes that ranks are numbered host by host, and that hosts are equal.
  const AlgorithmEntry& entry =
      entry_of("numbered", "broadcast",
               replaced(replaced(R"x("when": "hosts > 1", )x" + std::string(kHeads), "rank_of((host + k) % hosts, 0)",
                                 "(host + k) % hosts * local_ranks"),
                        "rank_of(host, (head + k) % local_ranks)", "host * local_ranks + (head + k) % local_ranks"));
  const World equal{4, {{0, 1}, {2, 3}}};
  const World dealt{4, {{0, 2}, {1, 3}}};
  const World unequal{4, {{0}, {1, 2, 3}}};
  for (int again = 0; again < 2; ++again) {
    CHECK(error_on(entry, equal) == "");
    CHECK(error_on(entry, dealt).find("hosts 2,2, of the ranks 0 2, 1 3") != std::string::npos);
    CHECK(error_on(entry, unequal).find("hosts 1,3") != std::string::npos);
  }
  CHECK(!prove_samples(entry).is_ok());
  // A program that states this is correct wherever it is supported.
  const std::string when = R"x("when": "hosts > 1 && equal_hosts && hosts_in_order", )x";
  const AlgorithmEntry& told =
      entry_of("numbered_told", "broadcast",
               replaced(replaced(when + kHeads, "rank_of((host + k) % hosts, 0)", "(host + k) % hosts * local_ranks"),
                        "rank_of(host, (head + k) % local_ranks)", "host * local_ranks + (head + k) % local_ranks"));
  CHECK(prove_samples(told).message() == "");
  CHECK(told.supports(equal));
  CHECK(!told.supports(dealt));
  CHECK(!told.supports(unequal));
  CHECK(!told.supports({4, {}}));
}

TEST_CASE("a program for hosts that are not tried is accepted, and proven on those") {
  const std::string when =
      R"x("when": "hosts == 3 && local_ranks_of(0) == 4 && local_ranks_of(1) == 1 && local_ranks_of(2) == 6", )x";
  const World world{11, {{0, 1, 2, 3}, {4}, {5, 6, 7, 8, 9, 10}}};
  const AlgorithmEntry& right = entry_of("own_hosts", "all_reduce", when + kLeaders);
  CHECK(sample_worlds(right).empty());
  CHECK(prove_samples(right).is_ok());
  CHECK(error_on(right, world) == "");
  const AlgorithmEntry& wrong =
      entry_of("own_wrong", "all_reduce", replaced(when + kLeaders, "(host - k - 1) % hosts", "(host - k) % hosts"));
  CHECK(prove_samples(wrong).is_ok());
  CHECK(error_on(wrong, world).find("hosts 4,1,6") != std::string::npos);
}

}  // namespace
}  // namespace tutti::internal::algorithms
