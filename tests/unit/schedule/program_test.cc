#include "algorithms/program.h"

#include <string>
#include <vector>

#include "algorithms/loaded.h"
#include "algorithms/prove.h"
#include "catch_compat.h"

namespace tutti::internal::algorithms {
namespace {

std::string value_of(const std::string& text) {
  const auto parsed = Expression::parse(text, {"ranks", "rank", "k"});
  if (!parsed.is_ok()) return parsed.status().message();
  const auto value = parsed.value().value({8, 3, -2}, Places(8, {{0, 1, 2}, {3, 5, 7, 4, 6}}));
  return value.is_ok() ? std::to_string(value.value()) : value.status().message();
}

TEST_CASE("expressions") {
  CHECK(value_of("1 + 2 * 3") == "7");
  CHECK(value_of("(1 + 2) * 3") == "9");
  CHECK(value_of("10 - 3 - 2") == "5");
  CHECK(value_of("(rank - 4) % ranks") == "7");
  CHECK(value_of("-7 / 2") == "-4");
  CHECK(value_of("k % 5") == "3");
  CHECK(value_of("rank == 3 && !(ranks < 8) || 0") == "1");
  CHECK(value_of("rank >= 3 && rank <= 3 && rank > 2 && rank < 4 && rank != 4") == "1");
  CHECK(value_of("2 >= 3") == "0");
  CHECK(value_of("3 > 3") == "0");
  CHECK(value_of("xor(rank, 1) + min(1, 2) + max(1, 2) + log2(9)") == "9");
  CHECK(value_of("log2(1)") == "0");
  CHECK(value_of("--3") == "3");
  CHECK(value_of("").find("is incomplete") != std::string::npos);
  CHECK(value_of("1 +").find("is incomplete") != std::string::npos);
  CHECK(value_of("1 2").find("unexpected \"2\"") != std::string::npos);
  CHECK(value_of("(1").find("\")\" is missing") != std::string::npos);
  CHECK(value_of("speed").find("\"speed\" is not defined here") != std::string::npos);
  CHECK(value_of("max(1)").find("max takes 2 operands") != std::string::npos);
  CHECK(value_of("1 / 0") == "divides by 0");
  CHECK(value_of("9007199254740993").find("is not a number") != std::string::npos);
  CHECK(value_of("4000000000 * 4000000000 * 4000000000").find("beyond 2^53") != std::string::npos);
  CHECK(value_of(std::string(5000, '(')).find("nested too deep") != std::string::npos);
  CHECK(value_of(std::string(5000, '-') + "1").find("nested too deep") != std::string::npos);
}

TEST_CASE("expressions that ask where ranks are") {
  // Hosts {0, 1, 2} and {3, 5, 7, 4, 6}; rank is 3, k is -2.
  CHECK(value_of("rank_of(0, 2)") == "2");
  CHECK(value_of("rank_of(1, 1)") == "5");
  CHECK(value_of("rank_of(1, local_ranks_of(1) - 1)") == "6");
  CHECK(value_of("host_of(2) * 10 + host_of(4)") == "1");
  CHECK(value_of("local_rank_of(rank) * 10 + local_rank_of(4)") == "3");
  CHECK(value_of("local_ranks_of(0) * 10 + local_ranks_of(host_of(rank))") == "35");
  CHECK(value_of("rank_of(host_of(7), local_rank_of(7))") == "7");
  CHECK(value_of("rank_of(2, 0)") == "rank_of(2, 0): there are hosts 0 to 1");
  CHECK(value_of("rank_of(k, 0)") == "rank_of(-2, 0): there are hosts 0 to 1");
  CHECK(value_of("rank_of(0, 3)") == "rank_of(0, 3): host 0 has the local ranks 0 to 2");
  CHECK(value_of("rank_of(1, k)") == "rank_of(1, -2): host 1 has the local ranks 0 to 4");
  CHECK(value_of("host_of(ranks)") == "host_of(8): there are ranks 0 to 7");
  CHECK(value_of("local_rank_of(-1)") == "local_rank_of(-1): there are ranks 0 to 7");
  CHECK(value_of("local_ranks_of(4294967296)") == "local_ranks_of(4294967296): there are hosts 0 to 1");
  CHECK(value_of("rank_of(1)").find("rank_of takes 2 operands") != std::string::npos);
  CHECK(value_of("host_of(1, 2)").find("\")\" is missing") != std::string::npos);
  // Without hosts all ranks are on one.
  const auto alone = [](const std::string& text) {
    const auto value = Expression::parse(text, {}).value().value({}, Places(8, {}));
    return value.is_ok() ? std::to_string(value.value()) : value.status().message();
  };
  CHECK(alone("rank_of(0, 7)") == "7");
  CHECK(alone("10 * host_of(7) + local_rank_of(7)") == "7");
  CHECK(alone("local_ranks_of(0)") == "8");
  CHECK(alone("rank_of(1, 0)") == "rank_of(1, 0): there are hosts 0 to 0");
  CHECK(alone("rank_of(0, 8)") == "rank_of(0, 8): host 0 has the local ranks 0 to 7");
}

Result<std::shared_ptr<const Program>> parsed(const std::string& text) {
  auto file = parse_json(text, "file", kScheduleFormat, kScheduleVersion);
  if (!file.is_ok()) return file.status();
  return Program::parse(std::move(*file));
}

std::string with_head(const std::string& name, const std::string& collective, const std::string& rest) {
  return R"x({"format": "tutti schedule", "version": 1, "name": ")x" + name + R"x(", "collective": ")x" + collective +
         "\"," + rest + "}";
}

// The error, at the latest from the proof.
std::string error_of(const std::string& text) {
  auto program = parsed(text);
  if (!program.is_ok()) return program.status().message();
  const AlgorithmEntry* entry = keep(*program);
  if (entry == nullptr) return "its name is taken";
  return prove_samples(*entry).message();
}

const char* const kRing = R"x("chunks": "ranks", "least_ranks": 2, "do": [
  {"for": "k", "from": 1, "below": "ranks", "do": [
    {"send": "(rank - k) % ranks", "to": "(rank + 1) % ranks"},
    {"recv_reduce": "(rank - k - 1) % ranks", "from": "(rank - 1) % ranks", "final": "k == ranks - 1"}]},
  {"for": "k", "from": 0, "below": "ranks - 1", "do": [
    {"send": "(rank - k) % ranks", "to": "(rank + 1) % ranks"},
    {"recv": "(rank - k - 1) % ranks", "from": "(rank - 1) % ranks"}]}])x";

TEST_CASE("a ring as a program is the catalog's ring") {
  const auto program = parsed(with_head("own_ring", "all_reduce", kRing));
  REQUIRE(program.is_ok());
  const AlgorithmEntry* ring = find(Collective::kAllReduce, "ring");
  for (int ranks = 2; ranks <= 9; ++ranks) {
    for (int rank = 0; rank < ranks; ++rank) {
      CHECK(to_text(program.value()->write({ranks, {}}, rank, 0).value()) ==
            to_text(make_schedule(*ring, {ranks, {}}, rank, 0).value()));
    }
  }
  CHECK(error_of(with_head("own_ring", "all_reduce", kRing)) == "");
}

TEST_CASE("programs with roots, conditions, rounds and places are proven") {
  CHECK(error_of(with_head("own_tree", "broadcast", R"x("do": [
    {"let": "i", "be": "(rank - root) % ranks"},
    {"for": "r", "below": "log2(ranks)", "do": [
      {"let": "bit", "be": "max(1, xor(0, 1)) * 1"},
      {"if": "r == 0", "do": [{"let": "unused", "be": "bit"}]}]},
    {"if": "i == 0",
     "do": [{"for": "p", "from": 1, "below": "ranks", "do": [{"send": 0, "to": "(root + p) % ranks"}]}],
     "else": [{"recv": 0, "from": "root"}]}])x")) == "");
  CHECK(error_of(with_head("own_alltoall", "alltoall", R"x("do": [
    {"copy_into": "output", "chunk": "rank", "source": "input", "source_chunk": "rank"},
    {"for": "k", "from": 1, "below": "ranks", "do": [
      {"wait_for_last": 1},
      {"send_from": "input", "chunk": "(rank + k) % ranks", "to": "(rank + k) % ranks"},
      {"recv_into": "output", "chunk": "(rank - k) % ranks", "from": "(rank - k) % ranks"}]}])x")) == "");
  CHECK(error_of(
            with_head("own_doubling", "all_reduce", R"x("when": "ranks == 2 || ranks == 4 || ranks == 8 || ranks == 16",
    "order": "ranks", "do": [
    {"for": "r", "below": "log2(ranks)", "do": [
      {"let": "bit", "be": "(r == 0) + 2 * (r == 1) + 4 * (r == 2) + 8 * (r == 3)"},
      {"send": 0, "to": "xor(rank, bit)"},
      {"recv_to_scratch": 0, "from": "xor(rank, bit)"},
      {"if": "xor(rank, bit) < rank",
       "do": [{"reduce_from_scratch": 0, "comes": "first", "final": "r == log2(ranks) - 1"}],
       "else": [{"reduce_from_scratch": 0, "comes": "last", "final": "r == log2(ranks) - 1"}]}]
  }])x")) == "");
}

TEST_CASE("unproven programs are refused with the place of the error") {
  // No rank receives; a chunk is missing; the order is not that of ranks.
  std::string ring = kRing;
  CHECK(error_of(with_head("bad_one", "all_reduce", R"x("do": [{"if": "rank > 0", "do": [{"send": 0, "to": 0}]}])x")) !=
        "");
  ring.replace(ring.find("ranks - 1"), 9, "ranks - 2");
  CHECK(error_of(with_head("bad_two", "all_reduce", ring)).find("bad_two") != std::string::npos);
  CHECK(error_of(with_head("bad_three", "all_reduce", "\"order\": \"ranks\"," + std::string(kRing))) != "");
  CHECK(error_of(with_head("ring", "all_reduce", kRing)) == "its name is taken");
  CHECK(error_of(with_head("k_nomial", "all_reduce", kRing)) == "its name is taken");
}

TEST_CASE("wrong files are refused with line and field") {
  const auto refused = [](const std::string& rest, const std::string& why) {
    const std::string error = error_of(with_head("wrong", "all_reduce", rest));
    INFO(error);
    CHECK(error.find(why) != std::string::npos);
  };
  refused(R"x("do": [{"send": 0, "to": "speed"}])x", "file:1: do[0].to: \"speed\" is not defined here");
  refused("\"do\": [\n{\"jump\": 0}]", "file:2: do[0]: is not a known statement");
  refused(R"x("do": [{"send": 0}])x", "do[0]: has no \"to\"");
  refused(R"x("do": [{"send": 0, "to": 1, "speed": 3}])x", "do[0].speed: is an unknown field");
  refused(R"x("do": [{"send": 5, "to": "(rank + 1) % ranks"}])x", "do[0]: rank 0: chunks 5 to 5 are not all of 0 to 0");
  refused(R"x("do": [{"send": 0, "to": "rank"}])x", "do[0]: rank 0: 0 is not another rank");
  refused(R"x("do": [{"send": "1 / (rank - rank)", "to": 0
  }])x",
          "do[0].send: rank 0: divides by 0");
  refused(R"x("do": [{"for": "k", "below": "1000000000", "do": []}])x", "statements are run");
  std::string sum = "1";
  for (int i = 0; i < 4000; ++i) sum += "+1";
  refused(R"x("do": [{"for": "k", "below": "1000000000", "do": [{"let": "x", "be": ")x" + sum + R"x("}]}])x",
          "numbers, names and operators are evaluated");
  refused(R"x("chunks": "0", "do": [])x", "chunks: is not from 1 to");
  refused(R"x("when": "0", "do": [])x", "supports no number of ranks");
  refused(R"x("order": "down", "do": [])x", "neither \"any\" nor \"ranks\"");
  refused(R"x("do": [{"copy_into": "outside", "chunk": 0, "source": "input", "source_chunk": 0}])x",
          "is not input, output or scratch");
  CHECK(error_of(with_head("Wrong", "all_reduce", "\"do\": []")).find("is not a word") != std::string::npos);
  CHECK(error_of(with_head("wrong", "all_reduced", "\"do\": []")).find("is not a collective") != std::string::npos);
  const std::string text = with_head("cut", "all_reduce", kRing);
  for (std::size_t length = 0; length < text.size(); length += 5) CHECK(error_of(text.substr(0, length)) != "");
}

// For each field of a statement: a name or a function of hosts means that the program asks for hosts.
TEST_CASE("programs say whether they ask which ranks are on which host") {
  const auto uses = [](const std::string& rest) {
    const auto program = parsed(with_head("uses", "broadcast", rest));
    REQUIRE(program.is_ok());
    return program.value()->uses_hosts();
  };
  const auto send = [](const std::string& chunk) { return R"x("do": [{"send": ")x" + chunk + R"x(", "to": 0}])x"; };
  for (const char* name : {"hosts", "equal_hosts", "hosts_in_order", "most_local_ranks"}) {
    INFO(name);
    CHECK(uses(std::string(R"x("do": [], "when": ")x") + name + '"'));
    CHECK(uses(std::string(R"x("do": [], "chunks": ")x") + name + '"'));
    CHECK(uses(send(name)));
  }
  for (const char* name : {"host", "local_rank", "local_ranks"}) {
    CHECK(uses(send(name)));
    const std::string own = std::string(R"x("do": [], "when": ")x") + name + '"';
    CHECK(error_of(with_head("own", "broadcast", own)).find(std::string("\"") + name + "\" is not defined") !=
          std::string::npos);
  }
  for (const char* call : {"rank_of(0, 0)", "host_of(0)", "local_rank_of(0)", "local_ranks_of(0)"}) {
    CHECK(uses(send(call)));
    CHECK(uses(std::string(R"x("do": [], "when": ")x") + call + '"'));
  }
  CHECK(!uses(send("ranks + rank + root")));
  // A variable of the program with that name.
  CHECK(!uses(R"x("do": [{"let": "host", "be": 0}, {"send": "host", "to": 0}])x"));
  CHECK(uses(R"x("do": [{"let": "host", "be": "host"}])x"));
}

TEST_CASE("the facts about hosts that a program gets") {
  const auto program = parsed(with_head("given", "all_reduce", R"x("chunks": 200, "do": [
    {"send": "hosts + 10 * equal_hosts + 100 * hosts_in_order", "to": "(rank + 1) % ranks"},
    {"send": "host + 10 * local_rank + 100 * (rank == 4)", "to": "(rank + 1) % ranks"},
    {"send": "local_ranks + 10 * most_local_ranks", "to": "(rank + 1) % ranks"}])x"));
  REQUIRE(program.is_ok());
  const auto sent = [&](const World& world, int rank) {
    const auto schedule = program.value()->write(world, rank, 0);
    REQUIRE(schedule.is_ok());
    std::vector<int> chunks;
    for (const schedule::Step& s : schedule.value().steps) {
      if (s.kind == schedule::StepKind::kSend) chunks.push_back(static_cast<int>(s.source_chunk));
    }
    return chunks;
  };
  const World unlike{5, {{0, 1}, {4, 2, 3}}};
  CHECK(sent(unlike, 0) == std::vector<int>{2, 0, 32});
  CHECK(sent(unlike, 1) == std::vector<int>{2, 10, 32});
  CHECK(sent(unlike, 4) == std::vector<int>{2, 101, 33});
  CHECK(sent(unlike, 3) == std::vector<int>{2, 21, 33});
  CHECK(sent({5, {}}, 3) == std::vector<int>{111, 30, 55});
  CHECK(sent({4, {{0, 1}, {2, 3}}}, 3) == std::vector<int>{112, 11, 22});
  CHECK(sent({4, {{0, 2}, {1, 3}}}, 3) == std::vector<int>{12, 11, 22});
}

TEST_CASE("\"when\" states the hosts that a program supports") {
  const auto serves = [](const std::string& when, const World& world) {
    return parsed(with_head("when", "all_reduce", R"x("do": [], "when": ")x" + when + '"')).value()->serves(world);
  };
  const World one{4, {}};
  const World equal{4, {{0, 1}, {2, 3}}};
  const World dealt{4, {{0, 2}, {1, 3}}};
  const World unequal{4, {{0, 1, 2}, {3}}};
  CHECK(serves("hosts == 1", one));
  CHECK(serves("hosts == 1", {4, {{0, 1, 2, 3}}}));
  CHECK(!serves("hosts > 1", one));
  CHECK(serves("equal_hosts && hosts == 2", equal));
  CHECK(serves("equal_hosts", dealt));
  CHECK(!serves("equal_hosts", unequal));
  CHECK(serves("hosts_in_order", unequal));
  CHECK(!serves("hosts_in_order", dealt));
  CHECK(serves("most_local_ranks == 3 && local_ranks_of(0) == 3 && local_ranks_of(1) == 1", unequal));
  CHECK(serves("host_of(2) == 0 && local_rank_of(2) == 1 && rank_of(1, 1) == 3", dealt));
  CHECK(!serves("rank_of(1, 1) == 1 || 1", unequal));  // cannot be computed
}

TEST_CASE("a rank or a host that does not exist is refused with line and field") {
  const auto refused = [](const std::string& rest, const std::string& why) {
    const std::string error = error_of(with_head("wrong_place", "all_reduce", rest));
    INFO(error);
    CHECK(error.find(why) != std::string::npos);
  };
  refused("\"do\": [\n{\"send\": 0,\n\"to\": \"rank_of(host, local_ranks)\"}]",
          "file:3: do[0].to: rank 0: rank_of(0, 2): host 0 has the local ranks 0 to 1");
  refused(R"x("do": [{"let": "next", "be": "rank_of(host + 1, 0)"}])x",
          "do[0].be: rank 0: rank_of(1, 0): there are hosts 0 to 0");
  refused(R"x("do": [{"if": "local_ranks_of(hosts)", "do": []}])x", "do[0].if: rank 0: local_ranks_of(1)");
  refused(R"x("do": [{"for": "k", "below": "host_of(ranks)", "do": []}])x", "do[0].below: rank 0: host_of(2)");
  refused("\"do\": [],\n\"chunks\": \"local_rank_of(-1)\"",
          "file:2: chunks: local_rank_of(-1): there are ranks 0 to 1");
}

TEST_CASE("steps that are written are read back, and proven") {
  int count = 0;
  for (const AlgorithmEntry& entry : catalog()) {
    if (has_root(entry.collective) || info_of(entry.collective).varies) continue;
    for (const int ranks : {2, 5}) {
      if (!entry.supports({ranks, {}})) continue;
      std::vector<schedule::Schedule> schedules;
      for (int r = 0; r < ranks; ++r) schedules.push_back(make_schedule(entry, {ranks, {}}, r, 0).value());
      const std::string name = "again" + std::to_string(++count);
      const std::string text = to_json(schedules, name, order_of(entry, {ranks, {}}));
      const auto program = parsed(text);
      INFO(entry.name << ' ' << name_of(entry.collective) << ": " << program.status().message());
      REQUIRE(program.is_ok());
      CHECK(program.value()->serves({ranks, {}}));
      CHECK(!program.value()->serves({ranks + 1, {}}));
      for (int r = 0; r < ranks; ++r) {
        CHECK(to_text(program.value()->write({ranks, {}}, r, 0).value()) ==
              to_text(schedules[static_cast<std::size_t>(r)]));
      }
      CHECK(error_of(text) == "");
    }
  }
  CHECK(count > 40);
  const auto two = [](const char* steps) {
    return with_head("two", "all_reduce", std::string("\"chunks\": 1, \"schedules\": [") + steps + "]");
  };
  CHECK(error_of(two(R"x([{"do": "jump", "chunks": 1}], [])x")).find("schedules[0][0]: \"jump\" is not a step") !=
        std::string::npos);
  CHECK(error_of(two(R"x([{"do": "send", "peer": 2, "chunks": 1, "source": "input"}], [])x")).find("peer") !=
        std::string::npos);
  CHECK(
      error_of(two(R"x([{"do": "send", "peer": 0, "chunks": 1, "source": "input"}], [])x")).find("not another rank") !=
      std::string::npos);
  CHECK(error_of(two(R"x([{"do": "copy", "chunks": 1, "source": "input", "target": "output", "after": [0]}], [])x"))
            .find("is not a step before this one") != std::string::npos);
  CHECK(error_of(two("[], []")) != "");  // nothing is combined
}

}  // namespace
}  // namespace tutti::internal::algorithms
