// Message counts and volumes against the formulas in the algorithms' headers, and properties of the model.
#include <algorithm>
#include <cmath>

#include "algorithms/catalog.h"
#include "algorithms/group.h"
#include "catch_compat.h"

namespace tutti::internal::algorithms {
namespace {

constexpr Costs kSomeLinks{{0.5, 1e-4, 0.1, 1, 32768}, {5.0, 1e-3, 1.0, 1.5, 32768}, 5e-5, 0};

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

TEST_CASE("trees and direct algorithms send what their degree says") {
  for (int n = 2; n <= 40; ++n) {
    const auto others = static_cast<std::size_t>(n - 1);
    CHECK(most_sent(Collective::kBroadcast, "k_nomial:2", n).messages == static_cast<std::size_t>(ceil_log2(n)));
    CHECK(most_sent(Collective::kReduce, "k_nomial:2", n).messages == 1);
    CHECK(most_sent(Collective::kBroadcast, "chain", n).messages == 1);
    CHECK(most_sent(Collective::kReduce, "chain", n).messages == 1);
    CHECK(most_sent(Collective::kBroadcast, "direct", n).messages == others);
    CHECK(most_sent(Collective::kAllReduce, "direct", n).messages == others);
    CHECK(most_sent(Collective::kAllReduce, "direct_two_phase", n).chunks == 2 * others);
    // Two trees of half the vector each: who has two children in one is a leaf of the other.
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
    // Of large vectors each further piece costs a message; of short ones they go on sooner.
    const Costs costs{{1, 0.001, 0.5, 1, 32768}, {}, 0, 0};
    const AlgorithmEntry& one = *find(Collective::kBroadcast, "chain");
    CHECK(entry.cost_us(World{3, {}}, 1 << 20, costs) > one.cost_us(World{3, {}}, 1 << 20, costs));
    if (pieces < 4) CHECK(entry.cost_us(World{3, {}}, 16384, costs) < one.cost_us(World{3, {}}, 16384, costs));
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
    CHECK((value <= 1 ? name.find(':') == std::string::npos : name == "k_nomial:" + std::to_string(value)));
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

TEST_CASE("the model knows the trade between rounds and bytes") {
  const World w{16, {}};
  const Costs links = kSomeLinks;
  const auto cost = [&](const char* name, double bytes) {
    return find(Collective::kAllReduce, name)->cost_us(w, bytes, links);
  };
  CHECK(cost("recursive_doubling", 8) < cost("ring", 8));
  CHECK(cost("ring", 64e6) < cost("recursive_doubling", 64e6));
  CHECK(cost("ring", 64e6) < cost("k_nomial:2", 64e6));
  for (const AlgorithmEntry& entry : catalog()) {
    World world{16, {}};
    if (!entry.supports(world)) world.hosts = {{0, 1, 2, 3, 4, 5, 6, 7}, {8, 9, 10, 11, 12, 13, 14, 15}};
    INFO(entry.name);
    CHECK(entry.cost_us(world, 8, links) > 0);
    CHECK(entry.cost_us(world, 1e6, links) > entry.cost_us(world, 8, links));
  }
  const double ring =
      find(Collective::kAllReduce, "ring")->cost_us(World{4, {}}, 4e6, {{1.0, 1e-3}, {1.0, 1e-3}, 1e-4, 0});
  CHECK(std::abs(ring - (2 * 3 + 0.75 * 4e6 * 2e-3 + 0.25 * 4e6 * 1e-4)) < 1e-6);
}

TEST_CASE("direct algorithms pay for every message, and are for few ranks and few bytes") {
  const auto cost = [](Collective c, const char* name, int n, double bytes) {
    return find(c, name)->cost_us(World{n, {}}, bytes, kSomeLinks);
  };
  const LinkCosts k = kSomeLinks.within_host;
  for (const Collective c : {Collective::kAllReduce, Collective::kBroadcast, Collective::kReduce, Collective::kBarrier,
                             Collective::kReduceScatter, Collective::kAllGather}) {
    INFO(name_of(c));
    CHECK(cost(c, "direct", 1, 0) == 0);
    CHECK(std::abs(cost(c, "direct", 2, 0) - k.alpha_us) < 1e-9);
    CHECK(std::abs(cost(c, "direct", 12, 0) - (k.alpha_us + 10 * k.message_us)) < 1e-9);
  }
  const double two_phase = cost(Collective::kAllReduce, "direct_two_phase", 12, 0);
  CHECK(std::abs(two_phase - 2 * (k.alpha_us + 10 * k.message_us)) < 1e-9);
  const auto all_reduce = [&](const char* name, int n, double b) { return cost(Collective::kAllReduce, name, n, b); };
  CHECK(all_reduce("direct", 4, 8) < all_reduce("recursive_doubling", 4, 8));
  CHECK(all_reduce("direct", 64, 8) > all_reduce("recursive_doubling", 64, 8));
  CHECK(all_reduce("direct", 4, 1e6) > all_reduce("direct_two_phase", 4, 1e6));
  CHECK(all_reduce("ring", 256, 64e6) < all_reduce("direct", 256, 64e6));
}

// All ranks are of one host, whose costs have the ranks per processor in them.
TEST_CASE("where ranks take turns, one-way algorithms cost their path and the mean rank's work") {
  const LinkCosts k{1.2, 1.4e-4, 0.4, 1, 32768};
  constexpr double kGamma = 8e-5;
  const auto cost = [&](Collective c, const char* name, int n, double bytes, double ranks_per_cpu) {
    return find(c, name)->cost_us(World{n, {}}, bytes, Costs{k, {}, kGamma, kGamma, ranks_per_cpu});
  };
  const auto work = [&](double bytes, double gamma) { return k.message_us + bytes * (k.beta_us_per_byte + gamma); };
  const auto hop = [&](double bytes, double gamma) { return k.alpha_us + bytes * (k.beta_us_per_byte + gamma); };
  const auto check = [&](Collective c, const char* name, double bytes, double path, double all_work) {
    INFO(name_of(c) << ' ' << name);
    CHECK(std::abs(cost(c, name, 4, bytes, 2) - (path + all_work / 4) / 2) < 1e-9);
  };
  // Four on two processors: one message of the path passes from one to the other; there are 3 in a chain, and 3 + 2 of
  // doubling.
  check(Collective::kBroadcast, "k_nomial:2", 1e6, hop(1e6, 0) + hop(1e6, 0) - k.alpha_us, 3 * work(1e6, 0));
  check(Collective::kScan, "chain", 1e6, hop(1e6, kGamma), 3 * work(1e6, kGamma));
  check(Collective::kScan, "recursive_doubling", 1e6, hop(1e6, kGamma), 5 * work(1e6, kGamma));
  check(Collective::kReduce, "direct", 1e3, 3 * hop(1e3, kGamma) - 2 * (k.alpha_us - k.message_us),
        3 * work(1e3, kGamma));
  for (const Collective c : {Collective::kScan, Collective::kExscan}) {
    INFO(name_of(c));
    for (const double bytes : {8.0, 1024.0, 16384.0, 65536.0, 1048576.0}) {
      CHECK(cost(c, "chain", 4, bytes, 2) < cost(c, "recursive_doubling", 4, bytes, 2));
    }
    CHECK(cost(c, "chain", 4, 1024, 1) > cost(c, "recursive_doubling", 4, 1024, 1));
    // So many processors that the chain has to pass each of them.
    CHECK(cost(c, "chain", 64, 1024, 2) > cost(c, "recursive_doubling", 64, 1024, 2));
  }
}

TEST_CASE("taking turns costs no more than waiting for all of one's processor, and nothing where each has its own") {
  for (const AlgorithmEntry& entry : catalog()) {
    if (!entry.supports(World{2, {}})) continue;
    for (const int n : {1, 2, 3, 4, 6, 7, 8, 16, 63}) {
      for (const double bytes : {0.0, 8.0, 4096.0, 65536.0, 16e6}) {
        INFO(entry.name << " " << name_of(entry.collective) << ", " << n << " ranks, " << bytes << " bytes");
        Costs costs = kSomeLinks;
        const double alone = entry.cost_us(World{n, {}}, bytes, costs);
        costs.ranks_per_cpu = 0.25;
        CHECK(entry.cost_us(World{n, {}}, bytes, costs) == alone);
        for (const double ranks_per_cpu : {1.25, 2.0, 4.0, 64.0}) {
          costs.ranks_per_cpu = ranks_per_cpu;
          const double us = entry.cost_us(World{n, {}}, bytes, costs);
          CHECK(us <= alone * (1 + 1e-9));
          CHECK((us > 0 || alone == 0));
        }
      }
    }
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
