// Routes the frames that a rank of the control tree receives from its neighbours: which ones it forwards, and which
// part handles them.
//
// A frame names its communicator and, if it is for all members, the members (CommName). A rank, member or not, forwards
// it to the neighbours that lead to members, except the one it came from. A tree has no cycles, so a frame reaches each
// member once, and a message that one rank sends because of another's message arrives after that one everywhere. If
// ranks have moved, any neighbour may lead to members. Members merge parts and leave notices on their way
// (all_gather.h, leave_notices.h).
// If disjoint groups have the same id, no frame of one may reach a member of the other. So one member of each claims
// the id at the root, which detects the second claim.
//
// A rank that reports a failure tells all its neighbours, also those that do not lead to members: one of them may
// become the parent of a member whose parent dies with the notice. A rank keeps nothing about a communicator of which
// it is not a member, except during an inquiry, and the last parts and notices that it has forwarded (kept_frames.h).
//
// Threads: the tree's only.
#pragma once

#include <string>

#include "control/agreements.h"
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
              Inquiries* inquiries, Agreements* agreements, KeptNotices* notices, TreeEvents* events)
      : view_(view),
        comms_(comms),
        neighbours_(*neighbours),
        healing_(*healing),
        inquiries_(*inquiries),
        agreements_(*agreements),
        notices_(*notices),
        events_(*events) {}

  // Reads all frames from the neighbour, until it blocks or has ended.
  void read_from(Neighbour* from);
  void handle(Neighbour* from, const std::string& frame);
  // Sends a rank's calls to the nearest members above; if there are none, to the nearest members on all branches.
  void pass_on_calls(CommId comm, Calls calls, const Neighbour* from);
  // Sends a notice of FrameKind::kClash to all ranks of the job, once.
  void tell_clash(const std::string& frame, const Neighbour* from);
  // Forwards a claim up, or tells all ranks that other members have the id.
  void claim(const CommName& comm);
  // Gives the frames kept for a communicator to it when it arrives.
  void replay_early(CommAgent* comm);

 private:
  bool hear(const Header& header, net::Unpacker* unpacker, const std::string& frame, Neighbour* from);
  bool hear_of_ranks(FrameKind kind, net::Unpacker* unpacker, const std::string& frame, Neighbour* from);
  bool hear_for_members(const Header& header, net::Unpacker* unpacker, const std::string& frame, const Neighbour* from);
  bool hear_calls(CommId comm, net::Unpacker* unpacker, const Neighbour* from);
  void keep_early(const Header& header, const std::string& frame);
  [[nodiscard]] bool keep_passed(FrameKind kind, const std::string& frame);
  void on_damage(const Neighbour& from, CommId comm);

  const JobView& view_;
  const CommTable& comms_;
  Neighbours& neighbours_;
  Healing& healing_;
  Inquiries& inquiries_;
  Agreements& agreements_;
  KeptNotices& notices_;
  TreeEvents& events_;
  EarlyFrames early_;
  Claims claims_;
};

}  // namespace tutti::internal::control
