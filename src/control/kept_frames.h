// Frames that a rank keeps for later: frames of communicators of which it will become a member, and the last notices
// that it has forwarded or sent, for later neighbours.
//
// Threads: the tree's only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "control/control_messages.h"

namespace tutti::internal::control {

// A frame names the members of its communicator. So a rank that has not made its own part of a communicator yet knows
// whether it will, and keeps the frames until then: at most as many as the ranks can send before all have joined, and
// of at most 1024 communicators. If frames of a communicator were lost, it fails when this rank makes its part.
class EarlyFrames {
 public:
  // `ranks`: of the job. REQUIRES: this rank is a member.
  void keep(const Header& header, const std::string& frame, int ranks);
  struct Kept {
    std::deque<std::string> frames;
    std::string lost;  // what the others have sent too much of; empty: nothing was lost
  };
  // Called once for each communicator.
  Kept take(CommId comm);

 private:
  struct Early {
    std::uint64_t number = 0;  // the oldest has the lowest number
    std::size_t members = 0;
    std::deque<std::string> frames;
    std::unordered_set<std::string_view> known;  // views into `frames`
    bool lost = false;                           // there were more frames
  };
  [[nodiscard]] bool is_forgotten(CommId comm) const;
  void make_room();

  std::map<CommId, Early> early_;
  std::uint64_t count_ = 0;       // the number of communicators so far
  std::deque<CommId> forgotten_;  // the last ones that did not fit
};

// The members of the last communicators whose ids ranks have claimed. If a program passes one id to disjoint groups, no
// frame of one communicator reaches a member of the other.
class Claims {
 public:
  // False if other members have claimed the id.
  bool add(CommId comm, const std::string& members);

 private:
  std::map<CommId, std::size_t> members_;  // hashes
  std::deque<CommId> order_;               // oldest first
};

// The last parts of all-gathers and notices of communicators of which this rank is not a member or that it has left,
// and all clashes of ids, if it has forwarded or sent them. A later neighbour may not have received them, and the rank
// that sent them may be gone.
class KeptNotices {
 public:
  // Keeps a frame to be forwarded. False if recent() has it: then this rank resends it itself.
  bool keep_passed(FrameKind kind, const std::string& frame);
  // This rank's last messages in a communicator that it leaves: parts, its failure, and its leave notice.
  void keep_farewell(std::string frame);
  [[nodiscard]] const std::deque<std::string>& parts() const { return parts_.frames; }
  [[nodiscard]] const std::deque<std::string>& passed() const { return passed_.frames; }
  [[nodiscard]] const std::deque<std::string>& refusals() const { return refusals_.frames; }
  [[nodiscard]] const std::deque<std::string>& farewells() const { return farewells_; }
  // The newest of these that were forwarded a short time ago, and all farewells: a rank that forwarded them may have
  // been lost with them. All ranks resend them after a healing, so it must be few.
  [[nodiscard]] std::vector<std::string> recent() const;

 private:
  struct Passed {
    std::deque<std::string> frames;  // the last ones
    std::deque<std::int64_t> at_ns;  // when each was forwarded
    std::size_t bytes = 0;
  };
  [[nodiscard]] Passed& kept_of(FrameKind kind);
  // The index of the first frame in recent().
  [[nodiscard]] static std::size_t first_recent(const Passed& passed);

  // None of these displaces another: a communicator can have any number of parts, and a rank can refuse any number of
  // calls.
  Passed parts_;
  Passed passed_;
  Passed refusals_;
  std::deque<std::string> farewells_;
};

}  // namespace tutti::internal::control
