// Communicators that are split off others, through the public interface.
#include "splits.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "sanitizers.h"
#include "suites.h"

namespace tutti::internal::test {
namespace {

// Threads and processes, and possible connections between them.
struct Way {
  RunJob run;
  const char* transports;
};
const std::vector<Way>& ways_of_threads() {
  static const std::vector<Way> all = {{run_threads, "shm"}, {run_threads, "sim:7"}, {run_threads, "tcp"}};
  return all;
}
const std::vector<Way>& ways_of_processes() {
  static const std::vector<Way> all = {
      {run_processes, "shm"}, {run_processes, "tcp"}, {run_processes, "shm,verbs,tcp"}};
  return all;
}

void require_on(const std::vector<Way>& ways, int ranks, const Body& body) {
  for (const Way& way : ways) {
    INFO(way.transports << ", " << ranks << " ranks");
    REQUIRE(wrong_of(way.run(ranks, way.transports, body)) == "");
  }
}

std::string destroy(const Split& split) {
  return tuttiCommDestroy(split.comm) == tuttiSuccess ? "" : std::string("destroy: ") + tuttiGetLastError(nullptr);
}

// Splits `parent` and its children repeatedly, by random values that all its ranks share; uses them alternately, and
// ends the children before or after their parent is used again.
std::string descend(const Split& parent, std::uint32_t seed, int depth) {
  std::mt19937 random(seed);
  Split first;
  Split second;
  if (std::string wrong = split_as(parent, draw_colors(random, parent.ranks()), &first); !wrong.empty()) return wrong;
  if (std::string wrong = split_as(parent, draw_colors(random, parent.ranks()), &second); !wrong.empty()) return wrong;
  const auto below = static_cast<std::uint32_t>(random());
  std::string wrong;
  if (depth > 1 && first.comm != nullptr)
    wrong = descend(first, below + static_cast<std::uint32_t>(first.members[0]), depth - 1);
  for (const Split* split : std::initializer_list<const Split*>{&second, &first, &parent, &first, &second}) {
    if (wrong.empty() && split->comm != nullptr) wrong = check_members(*split);
  }
  if (wrong.empty() && first.comm != nullptr) wrong = destroy(first);
  for (const Split* split : std::initializer_list<const Split*>{&parent, &second}) {
    if (wrong.empty() && split->comm != nullptr) wrong = check_members(*split);
  }
  if (wrong.empty() && second.comm != nullptr) wrong = destroy(second);
  return wrong;
}

void check_random(const std::vector<Way>& ways) {
  constexpr std::uint32_t kSeeds = kAnySanitizer ? 1 : 3;
  for (int ranks = 1; ranks <= 9; ranks += kThreadSanitizer ? 4 : 1) {
    require_on(ways, ranks, [](tuttiComm_t comm, int rank, int n) {
      for (std::uint32_t seed = 1; seed <= kSeeds; ++seed) {
        std::string wrong = descend(whole(comm, rank, n), seed * 100 + static_cast<std::uint32_t>(n), 3);
        if (!wrong.empty()) return Outcome{"seed " + std::to_string(seed) + ": " + wrong};
      }
      return Outcome{};
    });
  }
}

// Halves of the ranks, in reverse order.
Colors halves(int ranks) {
  Colors asked;
  for (int r = 0; r < ranks; ++r) {
    asked.colors.push_back(r % 2);
    asked.keys.push_back(-r);
  }
  return asked;
}

// Both halves at the same time; few enough that neither waits for the other until the timeout.
void check_collectives(const std::vector<Way>& ways) {
  for (const int ranks : {2, 5}) {
    require_on(ways, ranks, [](tuttiComm_t comm, int rank, int n) {
      Split half;
      if (std::string wrong = split_as(whole(comm, rank, n), halves(n), &half); !wrong.empty()) return Outcome{wrong};
      std::vector<Spec> specs = every_root(half.ranks());
      for (const Spec& spec : sample(every_type(half.ranks(), 101), kThreadSanitizer ? 49 : 7)) specs.push_back(spec);
      // Under ThreadSanitizer collectives_threads runs the longer ones.
      for (const Spec& spec : every_size(half.ranks(), kThreadSanitizer ? 10'000 : 100'000)) specs.push_back(spec);
      std::string wrong = Runner(half.comm, half.rank, half.ranks()).run_all(specs);
      if (wrong.empty()) wrong = Runner(comm, rank, n).run_all(every_root(n));
      return Outcome{wrong.empty() ? destroy(half) : wrong};
    });
  }
}

// The parent of a communicator may end before it, in any way.
void check_ends(const std::vector<Way>& ways) {
  enum class End { kFinalize, kDestroy, kChildFirst };
  for (const End end : {End::kFinalize, End::kDestroy, End::kChildFirst}) {
    INFO("end " << static_cast<int>(end));
    require_on(ways, 4, [&](tuttiComm_t comm, int rank, int n) {
      Split same;
      Split half;
      if (std::string wrong = split_as(whole(comm, rank, n), all_alike(n), &same); !wrong.empty())
        return Outcome{wrong};
      if (std::string wrong = split_as(same, halves(n), &half); !wrong.empty()) return Outcome{wrong};
      std::string wrong;
      if (end == End::kFinalize && tuttiCommFinalize(same.comm) != tuttiSuccess) wrong = tuttiGetLastError(same.comm);
      if (end == End::kFinalize && tuttiCommFinalize(comm) != tuttiSuccess) wrong += tuttiGetLastError(comm);
      if (end == End::kDestroy) wrong = destroy(same);
      if (end == End::kChildFirst) wrong = destroy(half);
      const Split& left = end == End::kChildFirst ? same : half;
      // Over its existing links, and over new ones: also for the child's child.
      Split later;
      if (wrong.empty()) wrong = check_members(left);
      if (wrong.empty()) wrong = split_as(left, all_alike(left.ranks()), &later);
      if (wrong.empty()) wrong = Runner(left.comm, left.rank, left.ranks()).run_all(every_root(left.ranks()));
      if (wrong.empty()) wrong = destroy(later);
      if (wrong.empty()) wrong = destroy(left);
      if (wrong.empty() && end == End::kFinalize) wrong = destroy(same);
      return Outcome{wrong};
    });
  }
}

std::string expect(tuttiResult_t result, tuttiResult_t expected, tuttiComm_t comm, const std::string& text) {
  const std::string told = tuttiGetLastError(comm);
  if (result == expected && told.find(text) != std::string::npos) return {};
  return "result " + std::to_string(result) + ", not " + std::to_string(expected) + " with \"" + text + "\": " + told;
}

// If one rank's arguments are refused, every rank gets an error, and all continue.
void check_refusals(const std::vector<Way>& ways) {
  enum class Fault { kColor, kNull, kConfig, kTransport, kInterface, kGroup };
  struct Case {
    Fault fault;
    tuttiResult_t result;
    const char* text;
  };
  for (const auto& [fault, result, text] : {Case{Fault::kColor, tuttiInvalidArgument, "color is -7"},
                                            {Fault::kNull, tuttiInvalidArgument, "newcomm is NULL"},
                                            {Fault::kConfig, tuttiInvalidArgument, "config.algorithm"},
                                            {Fault::kTransport, tuttiInvalidArgument, "config.transports"},
                                            {Fault::kInterface, tuttiInvalidArgument, "config.interface must equal"},
                                            {Fault::kGroup, tuttiInvalidUsage, "group"}}) {
    INFO(text);
    require_on(ways, 3, [&, fault = fault, result = result, text = text](tuttiComm_t comm, int rank, int n) {
      tuttiComm_t made = comm;
      if (rank != 1) {
        std::string wrong = expect(tuttiCommSplit(comm, 0, 0, &made, nullptr), tuttiInvalidUsage, comm,
                                   std::string("rank 1 was refused: "));
        if (!wrong.empty()) return Outcome{wrong};
      } else {
        tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
        if (fault == Fault::kConfig) config.algorithm = "nonsense";
        if (fault == Fault::kTransport) config.transports = "nonsense";
        if (fault == Fault::kInterface) config.interface = "nonsense";
        const bool configures = fault == Fault::kConfig || fault == Fault::kTransport || fault == Fault::kInterface;
        if (fault == Fault::kGroup && tuttiGroupStart() != tuttiSuccess) return Outcome{"no group"};
        std::string wrong =
            expect(tuttiCommSplit(comm, fault == Fault::kColor ? -7 : 0, 0, fault == Fault::kNull ? nullptr : &made,
                                  configures ? &config : nullptr),
                   result, comm, text);
        if (fault == Fault::kGroup && tuttiGroupEnd() != tuttiSuccess) wrong += tuttiGetLastError(nullptr);
        if (!wrong.empty()) return Outcome{wrong};
      }
      if (made != comm) return Outcome{"newcomm was written"};
      Split same;
      std::string wrong = split_as(whole(comm, rank, n), all_alike(n), &same);
      return Outcome{wrong.empty() ? destroy(same) : wrong};
    });
  }
}

std::string explained(tuttiComm_t comm, tuttiCollective_t collective) {
  std::array<char, 128> text{};
  const tuttiResult_t result = tuttiCommExplain(comm, collective, 1 << 20, text.data(), text.size());
  return result == tuttiSuccess ? text.data() : tuttiGetLastError(comm);
}

// Settings that rank 0 decides: the parent's rank 0's values apply in a child to which it does not belong, and the
// configuration of the child's rank 0 changes only the given fields.
void check_settings(const std::vector<Way>& ways) {
  for (const Way& way : ways) {
    INFO(way.transports);
    ::setenv("TUTTI_ALGORITHM", "all_reduce:ring", 1);
    const auto outcomes = way.run(4, way.transports, [](tuttiComm_t comm, int rank, int n) {
      const Split all = whole(comm, rank, n);
      Split half;
      Split configured;
      if (std::string wrong = split_as(all, halves(n), &half); !wrong.empty()) return Outcome{wrong};
      const std::string inherited = explained(half.comm, tuttiCollectiveAllReduce);
      if (inherited.find("ring") != 0) return Outcome{"inherited " + inherited};
      tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
      config.algorithm = rank < 2 ? "broadcast:k_nomial:2" : "broadcast:chain";
      std::string wrong = split_as(all, halves(n), &configured, rank == 1 ? nullptr : &config);
      if (!wrong.empty()) return Outcome{wrong};
      // Ranks 2 and 3 are rank 0 of their groups.
      const std::string chosen = explained(configured.comm, tuttiCollectiveBroadcast);
      if (chosen.find("chain") != 0) return Outcome{"chosen " + chosen};
      wrong = Runner(configured.comm, configured.rank, configured.ranks()).run_all(every_root(configured.ranks()));
      if (wrong.empty()) wrong = destroy(configured);
      return Outcome{wrong.empty() ? destroy(half) : wrong};
    });
    ::unsetenv("TUTTI_ALGORITHM");
    REQUIRE(wrong_of(outcomes) == "");
  }
}

// After everything queued before, and before everything queued afterwards.
void check_streams(const std::vector<Way>& ways) {
  require_on(ways, 3, [](tuttiComm_t comm, int rank, int n) {
    constexpr std::size_t kCount = kThreadSanitizer ? 100'000 : 300'000;
    constexpr int kRounds = kThreadSanitizer ? 2 : 5;
    std::vector<float> before(kCount);
    std::vector<float> after(kCount, 1);
    tuttiStream_t stream = nullptr;
    if (tuttiStreamCreate(&stream) != tuttiSuccess) return Outcome{"no stream"};
    std::string wrong;
    for (int i = 0; i < kRounds && wrong.empty(); ++i) {
      std::fill(before.begin(), before.end(), static_cast<float>(rank));
      if (tuttiAllReduce(before.data(), before.data(), kCount, tuttiFloat32, tuttiMax, comm, stream) != tuttiSuccess) {
        return Outcome{tuttiGetLastError(comm)};
      }
      Split same;
      wrong = split_as(whole(comm, rank, n), all_alike(n), &same);
      if (wrong.empty() && before != std::vector<float>(kCount, 2)) wrong = "the split has overtaken an all-reduce";
      if (wrong.empty() && tuttiAllReduce(after.data(), after.data(), kCount, tuttiFloat32, tuttiMax, same.comm,
                                          stream) != tuttiSuccess) {
        wrong = tuttiGetLastError(same.comm);
      }
      if (wrong.empty()) wrong = destroy(same);
    }
    if (tuttiStreamDestroy(stream) != tuttiSuccess) wrong += tuttiGetLastError(nullptr);
    return Outcome{wrong};
  });
}

// All of them connect at the same time, through the same listeners.
void check_beside_each_other(const std::vector<Way>& ways) {
  constexpr int kChildren = 5;
  require_on(ways, 4, [](tuttiComm_t comm, int rank, int n) {
    for (int round = 0; round < 3; ++round) {
      std::array<Split, kChildren> made;
      for (Split& split : made) {
        if (std::string wrong = split_as(whole(comm, rank, n), halves(n), &split); !wrong.empty())
          return Outcome{wrong};
      }
      std::array<std::string, kChildren> wrong;
      std::vector<std::thread> threads;
      for (std::size_t i = 0; i < kChildren; ++i) {
        threads.emplace_back([&, i] {
          // A split of it connects anew.
          Split again;
          wrong[i] = split_as(made[i], all_alike(made[i].ranks()), &again);
          if (wrong[i].empty())
            wrong[i] = Runner(again.comm, again.rank, again.ranks()).run_all(every_root(again.ranks()));
          if (wrong[i].empty()) wrong[i] = destroy(again);
        });
      }
      for (std::thread& thread : threads) thread.join();
      for (std::size_t i = 0; i < kChildren; ++i) {
        if (wrong[i].empty()) wrong[i] = destroy(made[i]);
        if (!wrong[i].empty()) return Outcome{"child " + std::to_string(i) + ": " + wrong[i]};
      }
    }
    return Outcome{};
  });
}

// The first queued operation of a communicator waits for links to ranks that never come, beside other communicators,
// until this rank aborts, or the other ranks, which called less, have left.
void check_nobody_comes(const std::vector<Way>& ways) {
  for (const bool aborts : {false, true}) {
    require_on(ways, 3, [aborts](tuttiComm_t comm, int rank, int) {
      tuttiComm_t made = nullptr;
      if (tuttiBarrier(comm, nullptr) != tuttiSuccess) return Outcome{tuttiGetLastError(comm)};
      if (tuttiCommSplit(comm, 0, rank, &made, nullptr) != tuttiSuccess) return Outcome{tuttiGetLastError(comm)};
      std::string wrong;
      if (rank == 0) {
        tuttiStream_t stream = nullptr;
        float value = 1;
        if (tuttiStreamCreate(&stream) != tuttiSuccess) return Outcome{"no stream"};
        if (tuttiAllReduce(&value, &value, 1, tuttiFloat32, tuttiSum, made, stream) != tuttiSuccess)
          return Outcome{tuttiGetLastError(made)};
        if (tuttiBarrier(comm, nullptr) != tuttiSuccess) return Outcome{tuttiGetLastError(comm)};
        if (aborts && tuttiCommAbort(made) != tuttiSuccess) wrong = "abort";
        const tuttiResult_t result = tuttiStreamSynchronize(stream);
        if (result != (aborts ? tuttiAborted : tuttiMismatch)) wrong += tuttiGetErrorString(result);
        if (tuttiStreamDestroy(stream) != tuttiSuccess) wrong += " a stream is left";
        if (!aborts) (void)tuttiCommDestroy(made);
      } else {
        if (tuttiBarrier(comm, nullptr) != tuttiSuccess) return Outcome{tuttiGetLastError(comm)};
        (void)tuttiCommDestroy(made);
      }
      if (tuttiBarrier(comm, nullptr) != tuttiSuccess) wrong += tuttiGetLastError(comm);
      return Outcome{wrong};
    });
  }
}

}  // namespace

TEST_CASE("threads: random splits, and splits of these", "[threads]") {
  check_random(ways_of_threads());
}
TEST_CASE("processes: random splits, and splits of these", "[processes]") {
  check_random(ways_of_processes());
}
TEST_CASE("threads: every collective of a communicator that is split off", "[threads]") {
  check_collectives(ways_of_threads());
}
TEST_CASE("processes: every collective of a communicator that is split off", "[processes]") {
  check_collectives(ways_of_processes());
}
TEST_CASE("threads: communicators of a family end in any order", "[threads]") {
  check_ends(ways_of_threads());
}
TEST_CASE("processes: communicators of a family end in any order", "[processes]") {
  check_ends(ways_of_processes());
}
TEST_CASE("threads: if one rank is refused, all ranks get an error", "[threads]") {
  check_refusals(ways_of_threads());
}
TEST_CASE("processes: if one rank is refused, all ranks get an error", "[processes]") {
  check_refusals(ways_of_processes());
}
TEST_CASE("threads: settings are inherited, or changed by a configuration", "[threads]") {
  check_settings(ways_of_threads());
}
TEST_CASE("processes: settings are inherited, or changed by a configuration", "[processes]") {
  check_settings(ways_of_processes());
}
TEST_CASE("threads: a split runs after queued operations", "[threads]") {
  check_streams(ways_of_threads());
}
TEST_CASE("processes: a split runs after queued operations", "[processes]") {
  check_streams(ways_of_processes());
}
TEST_CASE("threads: communicators of a family work concurrently", "[threads]") {
  check_beside_each_other(ways_of_threads());
}
TEST_CASE("processes: communicators of a family work concurrently", "[processes]") {
  check_beside_each_other(ways_of_processes());
}
TEST_CASE("threads: queued operations end although no other rank comes", "[threads]") {
  check_nobody_comes(ways_of_threads());
}
TEST_CASE("processes: queued operations end although no other rank comes", "[processes]") {
  check_nobody_comes(ways_of_processes());
}

}  // namespace tutti::internal::test
