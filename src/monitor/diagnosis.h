// The diagnosis of some communicators, from what their processes do: the ranks that are late, stopped, or call
// something else, and the ranks for which others wait.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "observe/reader.h"

namespace tutti::internal::monitor {

// A rank as it is now; of an ended process, as it was when its communicator failed or, without a failure, at the end.
struct Member {
  const observe::SeenProcess* process = nullptr;
  const observe::SeenRank* seen = nullptr;

  [[nodiscard]] const observe::SeenCall* last() const { return seen->last(); }
  [[nodiscard]] bool inside() const { return failed_and_ended() ? seen->failure->inside : seen->inside; }
  [[nodiscard]] const std::optional<observe::SeenRank::Wait>& wait() const {
    return failed_and_ended() ? seen->failure->wait : seen->wait;
  }
  [[nodiscard]] const std::optional<observe::SeenRank::Transfer>& transfer() const {
    return failed_and_ended() ? seen->failure->transfer : seen->transfer;
  }
  // CLOCK_MONOTONIC of its host.
  [[nodiscard]] std::int64_t now_ns() const {
    if (!process->ended) return process->read_ns;
    return seen->failure ? seen->failure->at_ns : seen->last_ns;
  }
  [[nodiscard]] std::int64_t ms_since(std::int64_t ns) const {
    return std::max<std::int64_t>(0, (now_ns() - ns) / 1'000'000);
  }

 private:
  [[nodiscard]] bool failed_and_ended() const { return process->ended && seen->failure.has_value(); }
};
using Members = std::map<int, Member>;  // by rank

struct Finding {
  // In the order of a report.
  enum class Kind : std::uint8_t {
    kFailed,
    kStopped,
    kEnded,
    kDiffers,
    kOperation,
    kBehind,
    kWaits,
    kLate,
    kUnread,
    kConclusion
  };
  Kind kind = Kind::kOperation;
  std::vector<int> ranks;  // that it is about, in rising order
  std::string text;        // a sentence without a full stop
  std::string cause{};     // of kLate: the name of a Cause (lateness.h)
};

struct CommunicatorFindings {
  std::uint64_t id = 0;
  int ranks = 0;
  int pid = 0;         // of its process, if it has one rank: such numbers are not unique; else 0
  bool stuck = false;  // a rank waits for long, or its process is stopped, or it waits in a failed communicator;
                       // or did so when its process ended
  bool failed = false;
  std::vector<Finding> findings;
};

inline constexpr std::int64_t kStuckMs = 5000;

// Ranks whose processes do not answer, and how to name them: "rank 5 (pid 77 on node2)".
using SilentRanks = std::map<int, std::string>;
// after_ms: how long a wait is long. `silent`: by communicator, of other hosts. Communicators whose ranks are all
// outside of operations have a finding, too. Those that are stuck come first, then those that have failed.
std::vector<CommunicatorFindings> diagnose(const std::vector<observe::SeenProcess>& processes,
                                           std::int64_t after_ms = kStuckMs,
                                           const std::map<std::uint64_t, SilentRanks>& silent = {});

// "operation 17, all_reduce(count 100, float, sum)".
std::string describe(const observe::SeenCall& call);
// "send of 400 bytes to rank 3".
std::string describe(const observe::SeenRank::Transfer& transfer);
// "ranks 1, 3", "ranks 1-8 and others".
std::string describe_awaited(const observe::SeenRank::Wait& wait);
// What a rank is doing: "waits 2 ms for rank 1", "inside", "outside", "failed", "stopped", "in tuttiCommShrink", "waits
// for its stream".
std::string describe_state(const observe::SeenProcess& process, const observe::SeenRank& rank);
// Its last call: as above, or "none yet".
std::string describe_last(const observe::SeenRank& rank);
// "communicator 10c9a18a29dda6b4 of 4 ranks: stands still" (or "has failed"), and a line for each finding.
std::string describe_findings(const CommunicatorFindings& findings);
// "350 ms", "12.1 s", "3 min".
std::string describe_time(std::int64_t ms);

}  // namespace tutti::internal::monitor
