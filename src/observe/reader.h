// Reads what the communicators of other processes are doing, or were doing when they ended, from their files of events
// (layout.h). Stops no process, and needs nothing from it: it may compute, wait, be stopped, or dump core.
//
// Threads: any; no function here has state.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/collectives.h"
#include "base/status.h"
#include "observe/measures.h"
#include "observe/thread_times.h"

namespace tutti::internal::observe {

// A collective that a rank has called.
struct SeenCall {
  std::uint32_t number = 0;
  std::uint32_t call = 0;  // words of its fingerprint
  std::uint32_t root = 0;
  std::uint64_t count = 0;
  std::string plan;                      // how the rank runs it; empty: not known
  std::optional<std::int64_t> begun_ns;  // CLOCK_MONOTONIC; nothing: not noted yet
  std::optional<std::int64_t> ended_ns;  // nothing: not ended, or too soon to be measured
  std::int64_t waited_ms = 0;            // the longest time in which nothing moved; short ones are not noted
  int waited_for = -1;                   // a rank for which it waited then
  // Over a network: for whose bytes it waited longest, and to whom the network did not take its bytes.
  struct LinkWait {
    int peer = -1;  // -1: none for long
    std::uint32_t us = 0;
  };
  LinkWait data;
  LinkWait room;
  std::uint32_t delay_us = 0;     // in these waits: runnable without a processor
  std::optional<Outside> before;  // what the rank did before; nothing: it was not outside for long, or not known
};

// A rank of one communicator.
struct SeenRank {
  std::uint64_t communicator = 0;  // the same on all of its ranks
  int rank = 0;
  int ranks = 0;
  std::uint32_t number = 0;  // of the collective that it called last; 0: none
  bool inside = false;       // in that one, or in a transfer
  struct Transfer {
    bool sends = false;
    int peer = 0;
    std::uint64_t bytes = 0;
  };
  std::optional<Transfer> transfer;  // of a group the first one
  // Nothing has moved for a while. Nothing: it is not waiting, or not for long.
  struct Wait {
    std::int64_t ms = 0;
    std::vector<int> ranks;  // for which it waits, in rising order
    bool others = false;     // for more ranks than these
  };
  std::optional<Wait> wait;
  // A call beside its operations that ranks agree on, such as tuttiCommShrink.
  struct Agreement {
    std::string call;
    std::int64_t since_ns = 0;  // CLOCK_MONOTONIC
  };
  std::optional<Agreement> agreement;
  std::optional<std::int64_t> behind_since_ns;  // as Position
  // The error that has failed the communicator, and what the rank was in at that moment.
  struct Failure {
    std::string error;
    std::int64_t at_ns = 0;  // CLOCK_MONOTONIC
    bool inside = false;     // in the collective that it called last, or in a transfer
    std::optional<Transfer> transfer{};
    std::optional<Wait> wait{};
  };
  std::optional<Failure> failure;
  std::array<std::uint64_t, kCollectives> counts{};  // of the operations of each collective that have begun
  std::vector<SeenCall> calls;                       // the last ones, oldest first
  // What it has done since it left its last operation. Nothing: it is inside, its process has ended, or not known.
  std::optional<Outside> outside;
  int thread = 0;  // that called its last operations, as its process numbers it; 0: not known
  // If its process has ended: CLOCK_MONOTONIC of the last event in this communicator on that host.
  std::int64_t last_ns = 0;
  std::optional<SeenMeasures> measures;  // nothing: its process has no TUTTI_METRICS

  // Null: it has called no collective, or is just calling one.
  [[nodiscard]] const SeenCall* last() const {
    return calls.empty() || calls.back().number != number ? nullptr : &calls.back();
  }
};

struct SeenProcess {
  int pid = 0;
  std::string host;
  std::string program;       // its command's name
  std::string version;       // of its library
  char state = '?';          // as in proc(5): R, S, D, T, Z, ...; '?': not known
  bool ended = false;        // it exists no longer
  std::int64_t read_ns = 0;  // CLOCK_MONOTONIC of its host when it was read; 0 if `ended`
  std::vector<SeenRank> ranks;

  [[nodiscard]] bool stopped() const { return state == 'T' || state == 't'; }
};

// The process with this id. kInvalidArgument: it does not exist, or has no communicator; kSystemError: its descriptors
// may not be read; kRemoteError: its library has another layout.
Result<SeenProcess> read_process(int pid);

struct SeenProcesses {
  std::vector<SeenProcess> processes;  // by id
  int unreadable = 0;                  // processes of other users
  bool complete = true;                // false: the reader was short of descriptors or memory
  // Why processes with another version of the library were not read, and why files of a folder were not.
  std::vector<std::string> others;
};

// All processes of this host that have communicators and may be read.
SeenProcesses read_all_processes();

// The processes of any host whose files are in the folder, which they have named in TUTTI_FLIGHT_RECORDER.
// kInvalidArgument: there is no such folder; kSystemError: it may not be read.
Result<SeenProcesses> read_folder(const std::string& folder);

}  // namespace tutti::internal::observe
