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
  const auto value = parsed.value().value({8, 3, -2});
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
  CHECK(value_of("").find("ends early") != std::string::npos);
  CHECK(value_of("1 +").find("ends early") != std::string::npos);
  CHECK(value_of("1 2").find("\"2\" is not expected") != std::string::npos);
  CHECK(value_of("(1").find("\")\" is missing") != std::string::npos);
  CHECK(value_of("speed").find("there is no \"speed\" here") != std::string::npos);
  CHECK(value_of("max(1)").find("max takes 2 operands") != std::string::npos);
  CHECK(value_of("1 / 0") == "divides by 0");
  CHECK(value_of("9007199254740993").find("is no number") != std::string::npos);
  CHECK(value_of("4000000000 * 4000000000 * 4000000000").find("beyond 2^53") != std::string::npos);
  CHECK(value_of(std::string(5000, '(')).find("nested too deep") != std::string::npos);
  CHECK(value_of(std::string(5000, '-') + "1").find("nested too deep") != std::string::npos);
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

// What is wrong with it, at last when it is proven.
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
      CHECK(to_text(program.value()->write(ranks, rank, 0).value()) ==
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

TEST_CASE("what is not proven is refused, and says where") {
  // Nobody receives; a chunk too few; not in the order of ranks.
  std::string ring = kRing;
  CHECK(error_of(with_head("bad_one", "all_reduce", R"x("do": [{"if": "rank > 0", "do": [{"send": 0, "to": 0}]}])x")) !=
        "");
  ring.replace(ring.find("ranks - 1"), 9, "ranks - 2");
  CHECK(error_of(with_head("bad_two", "all_reduce", ring)).find("bad_two") != std::string::npos);
  CHECK(error_of(with_head("bad_three", "all_reduce", "\"order\": \"ranks\"," + std::string(kRing))) != "");
  CHECK(error_of(with_head("ring", "all_reduce", kRing)) == "its name is taken");
  CHECK(error_of(with_head("k_nomial", "all_reduce", kRing)) == "its name is taken");
}

TEST_CASE("files that are wrong are refused with line and field") {
  const auto refused = [](const std::string& rest, const std::string& why) {
    const std::string error = error_of(with_head("wrong", "all_reduce", rest));
    INFO(error);
    CHECK(error.find(why) != std::string::npos);
  };
  refused(R"x("do": [{"send": 0, "to": "speed"}])x", "file:1: do[0].to: there is no \"speed\" here");
  refused("\"do\": [\n{\"jump\": 0}]", "file:2: do[0]: is none of the statements that there are");
  refused(R"x("do": [{"send": 0}])x", "do[0]: has no \"to\"");
  refused(R"x("do": [{"send": 0, "to": 1, "speed": 3}])x", "do[0].speed: is not known here");
  refused(R"x("do": [{"send": 5, "to": "(rank + 1) % ranks"}])x", "do[0]: rank 0: chunks 5 to 5 are not all of 0 to 0");
  refused(R"x("do": [{"send": 0, "to": "rank"}])x", "do[0]: rank 0: 0 is no other rank");
  refused(R"x("do": [{"send": "1 / (rank - rank)", "to": 0
  }])x",
          "do[0]: divides by 0");
  refused(R"x("do": [{"for": "k", "below": "1000000000", "do": []}])x", "statements are run");
  refused(R"x("chunks": "0", "do": [])x", "chunks: is not from 1 to");
  refused(R"x("when": "0", "do": [])x", "serves no number of ranks");
  refused(R"x("order": "down", "do": [])x", "neither \"any\" nor \"ranks\"");
  refused(R"x("do": [{"copy_into": "outside", "chunk": 0, "source": "input", "source_chunk": 0}])x",
          "none of input, output and scratch");
  CHECK(error_of(with_head("Wrong", "all_reduce", "\"do\": []")).find("is not a word") != std::string::npos);
  CHECK(error_of(with_head("wrong", "all_reduced", "\"do\": []")).find("is no collective") != std::string::npos);
  const std::string text = with_head("cut", "all_reduce", kRing);
  for (std::size_t length = 0; length < text.size(); length += 5) CHECK(error_of(text.substr(0, length)) != "");
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
      CHECK(program.value()->serves(ranks));
      CHECK(!program.value()->serves(ranks + 1));
      for (int r = 0; r < ranks; ++r) {
        CHECK(to_text(program.value()->write(ranks, r, 0).value()) == to_text(schedules[static_cast<std::size_t>(r)]));
      }
      CHECK(error_of(text) == "");
    }
  }
  CHECK(count > 40);
  const auto two = [](const char* steps) {
    return with_head("two", "all_reduce", std::string("\"chunks\": 1, \"schedules\": [") + steps + "]");
  };
  CHECK(error_of(two(R"x([{"do": "jump", "chunks": 1}], [])x")).find("schedules[0][0]: \"jump\" is no step") !=
        std::string::npos);
  CHECK(error_of(two(R"x([{"do": "send", "peer": 2, "chunks": 1, "source": "input"}], [])x")).find("peer") !=
        std::string::npos);
  CHECK(error_of(two(R"x([{"do": "send", "peer": 0, "chunks": 1, "source": "input"}], [])x")).find("no other rank") !=
        std::string::npos);
  CHECK(error_of(two(R"x([{"do": "copy", "chunks": 1, "source": "input", "target": "output", "after": [0]}], [])x"))
            .find("is no step before this one") != std::string::npos);
  CHECK(error_of(two("[], []")) != "");  // nothing is combined
}

}  // namespace
}  // namespace tutti::internal::algorithms
