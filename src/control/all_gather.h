// The all-gathers of a communicator, which are numbered.
//
// Parts are merged on their way: a rank forwards them up when all below it are here, down when all are here. If some
// ranks come long before others, their parts are forwarded without the rest, so that all ranks know whose parts are
// missing.
//
// Threads: as stated for each part.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/status.h"
#include "control/comm_members.h"
#include "control/comm_shared.h"
#include "control/control_messages.h"
#include "control/neighbours.h"
#include "control/rank_set.h"
#include "os/clock.h"

namespace tutti::internal::control {

class AllGather {
 public:
  // All outlive it.
  AllGather(const CommMembers& members, CommShared* shared, Neighbours* neighbours)
      : members_(members), shared_(*shared), neighbours_(*neighbours) {}

  // ---- The thread that gathers
  // Leaves this rank's part as a command. Returns the round.
  std::uint32_t begin(const std::string& mine);
  // Every rank's part, by rank. `gives_up`: as in ControlTree::split().
  Result<std::vector<std::string>> await(std::uint32_t round, Deadline deadline, const ControlTree::GivesUp& gives_up);

  // ---- The tree's thread
  void give(std::uint32_t round, std::string part);
  // The number of rounds to which this rank has contributed.
  [[nodiscard]] std::uint32_t given() const { return given_; }
  enum class Heard : std::uint8_t {
    kKept,
    kLate,   // this rank had all parts before
    kAhead,  // the round is one that no member can have begun
  };
  Heard hear(Parts parts, const Neighbour* from);
  // Sends the parts that are due by the tree's shape, or all if `at_once`.
  void pass_on(std::uint32_t round, bool at_once);
  void pass_on_all();
  // When waiting parts must be forwarded at the latest; 0: none waits.
  [[nodiscard]] std::int64_t due_ns() const { return due_ns_; }
  void advance(std::int64_t now_ns);
  // A rank has become a neighbour, perhaps again.
  void meet(int job_rank);
  // Frames with the parts that other ranks may still need, for resending: of the last complete round, and all that are
  // here of rounds under way. A member that lacks parts of a complete round receives them from any other member, also
  // those of ranks that have left since.
  [[nodiscard]] std::vector<std::string> needed() const;

 private:
  // By place.
  struct Gathering {
    std::vector<std::string> parts;
    RankSet places;               // whose parts are here
    std::map<int, RankSet> told;  // whose parts each neighbour has, by the neighbour's rank in the job
    bool passed_on = false;       // all parts are here, and sent to all neighbours
  };
  Gathering& gathering(std::uint32_t round) TUTTI_REQUIRES(shared_.mutex);
  [[nodiscard]] std::string pack(std::uint32_t round, int from, const RankSet& places,
                                 const std::vector<std::string>& parts) const;
  [[nodiscard]] Status hopeless(std::uint32_t round, const Gathering& at) TUTTI_REQUIRES(shared_.mutex);
  [[nodiscard]] std::vector<int> to_blame(const RankSet& places) const;

  static constexpr std::int64_t kFirstMs = 50;
  static constexpr std::int64_t kLongestMs = 400;

  const CommMembers& members_;
  CommShared& shared_;
  Neighbours& neighbours_;

  // The frame with all parts of the last complete round, the same on each member; empty in the job's first
  // communicator.
  std::string last_;
  std::uint32_t given_ = 0;
  std::int64_t due_ns_ = 0;
  std::int64_t wait_ms_ = kFirstMs;  // the next wait for other parts to merge with

  std::uint32_t next_round_ TUTTI_GUARDED_BY(shared_.mutex) = 0;
  std::map<std::uint32_t, Gathering> gatherings_ TUTTI_GUARDED_BY(shared_.mutex);  // by round
};

}  // namespace tutti::internal::control
