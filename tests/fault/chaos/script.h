// The script of one round of the chaos test, drawn from a seed: the same on every machine and in every process.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "collectives/moves.h"
#include "collectives/trial.h"

namespace tutti::internal::test::chaos {

inline constexpr int kMaxRanks = 8;
inline constexpr int kMaxComms = 3;
inline constexpr int kMaxMishaps = 2;

// SplitMix64 (Steele, Lea, Flood 2014).
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next();
  // 0 <= result < n
  int below(int n) { return static_cast<int>(next() % static_cast<std::uint64_t>(n)); }
  int between(int low, int high) { return low + below(high - low + 1); }
  bool chance(int percent) { return below(100) < percent; }

 private:
  std::uint64_t state_;
};

// Where the ranks run. Those of kInitAll are made by one tuttiCommInitAll, all others by tuttiCommInitRank.
enum class Hosting { kInitAll, kThreads, kMixed, kProcesses };

enum class MishapKind {
  kKill,      // SIGKILL
  kStop,      // SIGSTOP for a while, then SIGCONT or SIGKILL
  kAbort,     // tuttiCommAbort by another thread
  kLeave,     // finalizes or destroys early
  kExit,      // the process ends without destroying
  kAbsent,    // calls nothing until the others have finished
  kDiffer,    // calls something different
  kFewFiles,  // can open only a few more descriptors
};
inline constexpr int kMishapKinds = 8;
const char* name_of(MishapKind kind);

inline constexpr int kInInit = -1;  // as a step: while communicators are made

struct Mishap {
  MishapKind kind = MishapKind::kKill;
  int rank = 0;
  int step = 0;  // happens once `rank` has reached this step
  int delay_us = 0;
  int comm = 0;            // abort, leave
  bool orderly = false;    // leave: finalize alone; exit: exit() rather than _exit()
  int stopped_ms = 0;      // stop
  bool then_kill = false;  // stop
  int files = 0;           // few files
  Spec odd;                // differ
};

struct Step {
  int comm = 0;
  int stream = -1;           // -1: blocking
  bool synchronize = false;  // of the stream, in place of an operation
  int pause_us = 0;          // before it
  Spec spec;
  std::vector<Move> moves;  // if there are any: a group of these instead, with any communicators
};

struct Round {
  std::uint64_t seed = 0;
  int ranks = 2;
  Hosting hosting = Hosting::kProcesses;
  std::vector<int> process_of;  // by rank; numbered from 0
  int processes = 1;
  std::string transports;  // empty: the library's choice
  int timeout_ms = 0;
  int init_timeout_ms = 0;
  int comms = 1;
  int streams = 0;
  bool tiny_buffers = false;  // of TCP
  bool perturb = false;       // fresh and freed memory is filled with a pattern
  bool asks = false;          // another thread queries asynchronous errors and texts
  bool goes_on = false;       // at the end, the ranks that live make a communicator of themselves
  int loads = 0;              // processes that only use processor time
  std::vector<Step> steps;
  std::vector<Mishap> mishaps;

  [[nodiscard]] bool has(MishapKind kind) const;
};

// What rounds may contain.
struct Allowed {
  bool kinds[kMishapKinds] = {true, true, true, true, true, true, true, true};
  bool processes = true;
  bool tiny_buffers = true;
  int forced = -1;  // the kind of the first mishap of every round
};

Round draw_round(std::uint64_t seed, const Allowed& allowed);
std::string text_of(const Mishap& mishap);
std::string text_of(const Round& round);

}  // namespace tutti::internal::test::chaos
