// Message counts and volumes, compared with the formulas in the algorithms' headers.
#include <algorithm>
#include <cmath>

#include "algorithms/catalog.h"
#include "algorithms/group.h"
#include "catch_compat.h"

namespace tutti::internal::algorithms {
namespace {

struct Sent {
  std::size_t messages = 0;  // most of any rank
  std::size_t chunks = 0;    // most of any rank
};

Sent most_sent(Collective collective, const char* name, int ranks) {
  const AlgorithmEntry& entry = *find(collective, name);
  Sent most;
  for (int r = 0; r < ranks; ++r) {
    const schedule::Schedule s = make_schedule(entry, World{ranks, {}}, r, 0).value();
    Sent mine;
    for (const schedule::Step& step : s.steps) {
      if (step.kind != schedule::StepKind::kSend) continue;
      ++mine.messages;
      mine.chunks += step.chunks;
    }
    most.messages = std::max(most.messages, mine.messages);
    most.chunks = std::max(most.chunks, mine.chunks);
  }
  return most;
}

TEST_CASE("rings send n-1 parts for each of reduce-scatter and all-gather") {
  for (int n = 1; n <= 20; ++n) {
    const auto others = static_cast<std::size_t>(n - 1);
    CHECK(most_sent(Collective::kReduceScatter, "ring", n).messages == others);
    CHECK(most_sent(Collective::kAllGather, "ring", n).messages == others);
    CHECK(most_sent(Collective::kAllReduce, "ring", n).messages == 2 * others);
    CHECK(most_sent(Collective::kAllReduce, "ring", n).chunks == 2 * others);
  }
}

TEST_CASE("doubling and halving take log2 rounds") {
  for (int k = 0; k <= 6; ++k) {
    const int n = 1 << k;
    const auto rounds = static_cast<std::size_t>(k);
    const auto others = static_cast<std::size_t>(n - 1);
    CHECK(most_sent(Collective::kAllReduce, "recursive_doubling", n).messages == rounds);
    CHECK(most_sent(Collective::kReduceScatter, "recursive_halving", n).messages == rounds);
    CHECK(most_sent(Collective::kReduceScatter, "recursive_halving", n).chunks == others);
    CHECK(most_sent(Collective::kAllReduce, "halving_doubling", n).messages == 2 * rounds);
    CHECK(most_sent(Collective::kAllReduce, "halving_doubling", n).chunks == 2 * others);
  }
  for (int n = 2; n <= 40; ++n) {
    const bool folds = power_of_two_below(n) != n;
    const auto rounds = static_cast<std::size_t>(ceil_log2(power_of_two_below(n)));
    CHECK(most_sent(Collective::kAllReduce, "recursive_doubling", n).messages == rounds + (folds ? 1 : 0));
    CHECK(most_sent(Collective::kAllGather, "bruck", n).chunks == static_cast<std::size_t>(n - 1));
    // Ranges that wrap around are two messages.
    CHECK(most_sent(Collective::kAllGather, "bruck", n).messages <= 2 * static_cast<std::size_t>(ceil_log2(n)));
  }
}

TEST_CASE("trees and direct algorithms send as many messages as their degree") {
  for (int n = 2; n <= 40; ++n) {
    const auto others = static_cast<std::size_t>(n - 1);
    CHECK(most_sent(Collective::kBroadcast, "k_nomial:2", n).messages == static_cast<std::size_t>(ceil_log2(n)));
    CHECK(most_sent(Collective::kReduce, "k_nomial:2", n).messages == 1);
    CHECK(most_sent(Collective::kBroadcast, "chain", n).messages == 1);
    CHECK(most_sent(Collective::kReduce, "chain", n).messages == 1);
    CHECK(most_sent(Collective::kBroadcast, "direct", n).messages == others);
    CHECK(most_sent(Collective::kAllReduce, "direct", n).messages == others);
    CHECK(most_sent(Collective::kAllReduce, "direct_two_phase", n).chunks == 2 * others);
    // Two trees with half of the vector each: a rank with two children in one is a leaf of the other.
    CHECK(most_sent(Collective::kBroadcast, "double_tree", n).chunks <= 2);
    CHECK(most_sent(Collective::kReduce, "double_tree", n).chunks <= 2);
  }
}

TEST_CASE("trees of a radix have as many children in a round as it says, and are direct from n on") {
  const auto messages = [](const char* name, int n) { return most_sent(Collective::kBroadcast, name, n).messages; };
  CHECK(messages("k_nomial:4", 16) == 6);
  CHECK(messages("k_nomial:8", 64) == 14);
  CHECK(messages("k_nomial:3", 27) == 6);
  CHECK(messages("k_nomial:3", 10) == 5);  // 1, 2; 3, 6; 9
  CHECK(messages("k_nomial:64", 64) == 63);
  for (const Collective c : {Collective::kBroadcast, Collective::kReduce, Collective::kGather, Collective::kScatter}) {
    for (const int n : {2, 5, 9, 64}) {
      for (int r = 0; r < n; ++r) {
        const auto tree = make_schedule(*find(c, "k_nomial:1000"), World{n, {}}, r, n / 2);
        const auto direct = make_schedule(*find(c, "direct"), World{n, {}}, r, n / 2);
        REQUIRE((tree.is_ok() && direct.is_ok()));
        CHECK(tree.value().steps.size() == direct.value().steps.size());
        for (std::size_t i = 0; i < tree.value().steps.size(); ++i) {
          CHECK(tree.value().steps[i].kind == direct.value().steps[i].kind);
          CHECK(tree.value().steps[i].peer == direct.value().steps[i].peer);
        }
      }
    }
  }
}

TEST_CASE("a chain sends as many messages as it has pieces, each as soon as it has come") {
  for (const int pieces : {2, 3, 1024}) {
    const AlgorithmEntry& entry = *find(Collective::kBroadcast, "chain:" + std::to_string(pieces));
    const auto made = make_schedule(entry, World{3, {}}, 1, 0);
    REQUIRE(made.is_ok());
    const std::vector<schedule::Step>& steps = made.value().steps;
    REQUIRE(steps.size() == 2 * static_cast<std::size_t>(pieces));
    for (std::size_t i = 0; i < steps.size(); ++i) {
      CHECK(steps[i].kind == (i % 2 == 0 ? schedule::StepKind::kRecv : schedule::StepKind::kSend));
      CHECK((steps[i].chunks == 1 && steps[i].target_chunk == i / 2));
    }
  }
  for (const char* name : {"chain:0", "chain:1", "chain:1025", "chain:", "chain:2:2"}) {
    CHECK(find(Collective::kBroadcast, name) == nullptr);
  }
  CHECK(find(Collective::kAllReduce, "chain:2") == nullptr);
}

TEST_CASE("an entry is found for any radix, and is the same each time") {
  const AlgorithmEntry* const seven = find(Collective::kReduce, "k_nomial:7");
  REQUIRE(seven != nullptr);
  CHECK((seven->parameter.value == 7 && seven->name == std::string("k_nomial:7") &&
         seven->collective == Collective::kReduce));
  CHECK(find(Collective::kReduce, "k_nomial:7") == seven);
  CHECK(find(Collective::kBroadcast, "k_nomial:7") != seven);
  CHECK((is_listed(*find(Collective::kReduce, "k_nomial:4")) && !is_listed(*seven)));
  CHECK(find(Collective::kReduce, "k_nomial:1048576") != nullptr);
  for (const char* name : {"k_nomial", "k_nomial:", "k_nomial:1", "k_nomial:0", "k_nomial:-2", "k_nomial:04",
                           "k_nomial:4 ", "k_nomial:+4", "k_nomial:x", "k_nomial:4:4", "k_nomial:1048577", "ring:4"}) {
    INFO(name);
    CHECK(find(Collective::kReduce, name) == nullptr);
  }
  CHECK(find(Collective::kScan, "k_nomial:4") == nullptr);
  for (const AlgorithmEntry& entry : catalog()) {
    INFO(entry.name);
    const std::string name = entry.name;
    const int value = entry.parameter.value;
    const bool may_be_asked_for = value >= entry.parameter.least && value <= entry.parameter.most && value != 0;
    const std::size_t colon = name.find(':');
    CHECK((colon != std::string::npos) == may_be_asked_for);
    if (may_be_asked_for) CHECK(name.substr(colon + 1) == std::to_string(value));
  }
}

TEST_CASE("exchanges with one partner at a time send one message for each") {
  for (int n = 1; n <= 40; ++n) {
    const auto others = static_cast<std::size_t>(n - 1);
    CHECK(most_sent(Collective::kAllToAll, "pairwise", n).messages == others);
    const auto rounds = static_cast<std::size_t>(ceil_log2(power_of_two_below(n)));
    const Sent doubling = most_sent(Collective::kAllGather, "recursive_doubling", n);
    CHECK(doubling.messages == rounds + (power_of_two_below(n) == n ? 0 : 1));
    if (power_of_two_below(n) == n) CHECK(doubling.chunks == others);
  }
}

TEST_CASE("between hosts, hierarchical algorithms send the vector across once") {
  World w{8, {{0, 1, 2, 3}, {4, 5, 6, 7}}};
  const AlgorithmEntry& entry = *find(Collective::kAllReduce, "hierarchical");
  std::size_t across = 0;
  std::uint32_t chunks = 0;
  for (int r = 0; r < 8; ++r) {
    const schedule::Schedule s = make_schedule(entry, w, r, 0).value();
    chunks = s.shape.chunks;
    for (const schedule::Step& step : s.steps) {
      if (step.kind == schedule::StepKind::kSend && step.peer / 4 != r / 4) across += step.chunks;
    }
  }
  CHECK(across == 2 * std::size_t{chunks});  // once each way
}

}  // namespace
}  // namespace tutti::internal::algorithms
