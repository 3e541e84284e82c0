// Frames that a rank keeps for later: those of communicators that it is to become a member of, and the last notices
// that it has passed on or said, for ranks that it meets later.
//
// Threads: the tree's alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <unordered_set>

#include "control/control_messages.h"

namespace tutti::internal::control {

// A frame names the members of its communicator. So a rank that has not made its own part of a communicator yet knows
// whether it will, and keeps what it hears of it until then: no more than ranks can say before all have come, and of no
// more than 1024 communicators. One of which something has been lost fails when this rank makes its part.
class EarlyFrames {
 public:
  // `ranks`: of the job. REQUIRES: this rank is a member.
  void keep(const Header& header, const std::string& frame, int ranks);
  struct Kept {
    std::deque<std::string> frames;
    std::string lost;  // what the others have said too much of; empty: nothing is lost
  };
  // Once for each communicator.
  Kept take(CommId comm);

 private:
  struct Early {
    std::uint64_t number = 0;  // the oldest has the lowest
    std::size_t members = 0;
    std::deque<std::string> frames;
    std::unordered_set<std::string_view> known;  // the same
    bool lost = false;                           // there have been more
  };
  [[nodiscard]] bool is_forgotten(CommId comm) const;
  void make_room();

  std::map<CommId, Early> early_;
  std::uint64_t count_ = 0;       // how many there have been
  std::deque<CommId> forgotten_;  // the last that were too many
};

// Which members the last communicators have whose ids ranks have claimed: a program that passes one id to disjoint
// groups makes communicators of which no frame of one meets a member of the other.
class Claims {
 public:
  // False if other members have claimed the id.
  bool add(CommId comm, const std::string& members);

 private:
  std::map<CommId, std::size_t> members_;  // hashes
  std::deque<CommId> order_;               // the oldest first
};

// The last notices of communicators that this rank is no member of, which it has passed on, or has left. A rank that
// it meets later may not have heard them, and the rank that said them may be gone.
class KeptNotices {
 public:
  // A notice that is to be passed on. False if it has been before.
  bool keep_passed(FrameKind kind, const std::string& frame);
  // What this rank has said last in a communicator that it leaves: of its failure, and its leave notice.
  void keep_farewell(std::string frame);
  [[nodiscard]] const std::deque<std::string>& passed() const { return passed_.frames; }
  [[nodiscard]] const std::deque<std::string>& refusals() const { return refusals_.frames; }
  [[nodiscard]] const std::deque<std::string>& farewells() const { return farewells_; }

 private:
  struct Passed {
    std::deque<std::string> frames;  // the last ones
    std::size_t bytes = 0;
  };
  Passed passed_;
  Passed refusals_;  // a rank can refuse any number of calls: refusals displace none of the others
  std::deque<std::string> farewells_;
};

}  // namespace tutti::internal::control
