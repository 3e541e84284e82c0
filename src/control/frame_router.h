// What comes to a rank of the control tree from its neighbours: what it passes on, and to which part it gives it.
//
// A frame names its communicator and, if it is for all members, these (CommName). A rank passes it on to the neighbours
// that lead to members, but not to the one it came from, whether it is a member or not. A tree has no cycles, so a
// frame reaches each member once, and whatever one rank says because of what it has heard of another is heard after
// that everywhere. Where a rank has moved, any neighbour may lead to members. Members merge parts and leave notices on
// their way (all_gather.h, leave_notices.h).
// Of disjoint groups with one id, no frame of one may meet a member of the other. So one member of each claims the id
// at the root, which finds the second.
//
// A rank that tells of a failure tells all its neighbours, also those that do not lead to members: one of them may take
// in a member whose parent dies with the notice. A rank keeps nothing of a communicator that it is no member of, but
// for the time of an inquiry, and the last notices that it has passed on (kept_frames.h).
//
// Threads: the tree's alone.
#pragma once

#include <string>

#include "control/comm_table.h"
#include "control/control_messages.h"
#include "control/healing.h"
#include "control/inquiries.h"
#include "control/job_view.h"
#include "control/kept_frames.h"
#include "control/neighbours.h"
#include "control/tree_events.h"

namespace tutti::internal::control {

class FrameRouter {
 public:
  // All outlive it.
  FrameRouter(const JobView& view, const CommTable& comms, Neighbours* neighbours, Healing* healing,
              Inquiries* inquiries, KeptNotices* notices, TreeEvents* events)
      : view_(view),
        comms_(comms),
        neighbours_(*neighbours),
        healing_(*healing),
        inquiries_(*inquiries),
        notices_(*notices),
        events_(*events) {}

  // All frames that the neighbour has sent, until it blocks or has ended.
  void read_from(Neighbour* from);
  void handle(Neighbour* from, const std::string& frame);
  // What a rank has called, to the nearest members above, or where there are none, to the nearest of all.
  void pass_on_calls(CommId comm, Calls calls, const Neighbour* from);
  // Takes a claim up, or tells all ranks that other members have the id.
  void claim(const CommName& comm);
  // To the communicator, which is there now, what was kept for it.
  void replay_early(CommAgent* comm);

 private:
  bool hear(const Header& header, net::Unpacker* unpacker, const std::string& frame, Neighbour* from);
  bool hear_of_ranks(FrameKind kind, net::Unpacker* unpacker, const std::string& frame, Neighbour* from);
  bool hear_for_members(const Header& header, net::Unpacker* unpacker, const std::string& frame, const Neighbour* from);
  bool hear_calls(CommId comm, net::Unpacker* unpacker, const Neighbour* from);
  void keep_early(const Header& header, const std::string& frame);
  [[nodiscard]] bool keep_passed(const Header& header, const std::string& frame);
  void on_damage(const Neighbour& from, CommId comm);

  const JobView& view_;
  const CommTable& comms_;
  Neighbours& neighbours_;
  Healing& healing_;
  Inquiries& inquiries_;
  KeptNotices& notices_;
  TreeEvents& events_;
  EarlyFrames early_;
  Claims claims_;
};

}  // namespace tutti::internal::control
