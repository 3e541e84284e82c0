// What comes to a rank of the control tree from its neighbours: what it passes on, and to which of its communicators it
// gives it.
#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "base/rank_list.h"
#include "control/control_comm.h"
#include "control/socket_tree.h"
#include "control/tree_shape.h"
#include "net/frame.h"
#include "os/clock.h"

namespace tutti::internal::control {
namespace {

// Before all have come a rank can give its part to the first all-gather, fail, and leave, and say all that again.
constexpr std::size_t kEarlyFramesEach = 16;
constexpr std::size_t kMaxEarly = 1024;      // communicators of which something is kept
constexpr std::size_t kMaxForgotten = 1024;  // of those that were too many
// Of notices that have been passed on.
constexpr std::size_t kMaxPassed = 1024;
constexpr std::int64_t kLongestContactsMs = 400;
constexpr std::size_t kMaxPassedBytes = std::size_t{1} << 20;

}  // namespace

void SocketTree::read_from(Neighbour* from) {
  while (from->socket.valid() && !from->ended) {
    Result<net::FrameReader::Progress> progress = from->reader.read(from->socket.get());
    if (progress.is_ok() && *progress == net::FrameReader::Progress::kBlocked) return;
    if (progress.is_ok() && *progress == net::FrameReader::Progress::kFrame) {
      handle(from, from->reader.take());
    } else {
      from->ended = true;
    }
  }
}

void SocketTree::handle(Neighbour* from, const std::string& frame) {
  from->confirmed = true;
  if (frame.empty()) return;  // the parent's welcome, which this rank has not waited for: it tells of a failure
  net::Unpacker unpacker(frame);
  Header header;
  if (unpack_header(&unpacker, &header) && hear(header, &unpacker, frame, from)) return;
  on_damage(*from, header.comm);
}

bool SocketTree::hear(const Header& header, net::Unpacker* unpacker, const std::string& frame, Neighbour* from) {
  if (header.kind < FrameKind::kParts) return hear_of_ranks(header.kind, unpacker, frame, from);
  if (header.kind < FrameKind::kCalls) return hear_for_all(header, unpacker, frame, from);
  if (header.kind == FrameKind::kCalls) return hear_calls(header.comm, unpacker, from);
  return hear_inquiry(header, unpacker, from);
}

bool SocketTree::hear_of_ranks(FrameKind kind, net::Unpacker* unpacker, const std::string& frame, Neighbour* from) {
  int rank = -1;
  Death death;
  std::vector<Contact> contacts;
  Attachment attachment;
  if (kind == FrameKind::kBye) {
    if (!unpack_bye(unpacker, ranks_, &rank)) return false;
    on_bye(rank, frame, from);
  } else if (kind == FrameKind::kDeath) {
    if (!unpack_death(unpacker, ranks_, &death)) return false;
    on_death(death, from);
  } else if (kind == FrameKind::kContacts) {
    if (!unpack_contacts(unpacker, ranks_, &contacts)) return false;
    on_contacts(std::move(contacts), from);
  } else {
    if (!unpack_attachment(unpacker, ranks_, &attachment)) return false;
    on_attachment(attachment, frame, from);
  }
  return true;
}

// What may be said again by all who know it a member passes on itself, once. So it does with what is merged on the way.
bool SocketTree::hear_for_all(const Header& header, net::Unpacker* unpacker, const std::string& frame,
                              const Neighbour* from) {
  ControlComm* const comm = find(header.comm);
  const bool once = header.kind >= FrameKind::kNotice;
  const bool by_member = comm != nullptr && (once || header.kind == FrameKind::kParts);
  const bool known = comm == nullptr && once && !keep_passed(header, frame);
  // What tells of a failure goes to all, so that whoever takes a rank in can tell it; parts as well, so that members of
  // different communicators with one id hear of each other.
  const bool by_route = header.kind == FrameKind::kDecision || header.kind == FrameKind::kLeaveNotices;
  if (!by_member && !known) by_route ? flood_to(header.members, frame, from) : flood(frame, from);
  return comm != nullptr ? comm->hear(header, unpacker, frame, from) : keep_early(header, frame);
}

// The job's first communicator is there from the beginning.
bool SocketTree::keep_early(const Header& header, const std::string& frame) {
  if (header.comm == 0 || !is_member(header.members, rank_) || has_left(header.comm)) return true;
  if (std::find(forgotten_.begin(), forgotten_.end(), header.comm) != forgotten_.end()) return true;
  if (!early_.contains(header.comm)) make_room_for_early();
  const auto [kept, is_new] = early_.try_emplace(header.comm);
  if (is_new) kept->second.number = ++earlies_;
  kept->second.members = std::max(kept->second.members, count_members(header.members, ranks_));
  if (kept->second.known.contains(frame)) return true;
  Early& early = kept->second;
  // A rank can refuse any number of calls: they must not displace what the communicator cannot do without.
  if (header.kind == FrameKind::kRefusal && early.frames.size() >= early.members * kEarlyFramesEach / 2) return true;
  early.lost = early.lost || early.frames.size() >= early.members * kEarlyFramesEach;
  if (!early.lost) early.known.insert(early.frames.emplace_back(frame));
  return true;
}

// The oldest gives way: most likely this rank has failed to make its part.
void SocketTree::make_room_for_early() {
  if (early_.size() < kMaxEarly) return;
  const auto oldest = std::min_element(early_.begin(), early_.end(),
                                       [](const auto& a, const auto& b) { return a.second.number < b.second.number; });
  forgotten_.push_back(oldest->first);
  if (forgotten_.size() > kMaxForgotten) forgotten_.pop_front();
  early_.erase(oldest);
}

// To the communicator, which is there now.
void SocketTree::replay_early(ControlComm* comm) {
  const bool forgotten = std::find(forgotten_.begin(), forgotten_.end(), comm->id()) != forgotten_.end();
  const auto kept = early_.find(comm->id());
  if (forgotten || (kept != early_.end() && kept->second.lost)) {
    comm->fail(
        {Code::kInvalidUsage,
         fmt::format("rank {} came to this communicator too late: the other ranks have sent it more than {} meanwhile",
                     comm->rank_of(rank_),
                     forgotten ? fmt::format("{} communicators", kMaxEarly) : std::string("it keeps"))});
  }
  if (kept == early_.end()) return;
  const Early early = std::move(kept->second);
  early_.erase(kept);
  for (const std::string& frame : early.frames) {
    net::Unpacker unpacker(frame);
    Header header;
    if (unpack_header(&unpacker, &header)) (void)comm->hear(header, &unpacker, frame, nullptr);
  }
}

// False if it has been passed on before.
bool SocketTree::keep_passed(const Header& header, const std::string& frame) {
  auto& [frames, bytes] = header.kind == FrameKind::kRefusal ? passed_refusals_ : passed_;
  if (std::find(frames.rbegin(), frames.rend(), frame) != frames.rend()) return false;
  frames.push_back(frame);
  bytes += frame.size();
  unheard_ = unheard_ || search_.has_value();
  while (frames.size() > kMaxPassed || bytes > kMaxPassedBytes) {
    bytes -= frames.front().size();
    frames.pop_front();
  }
  return true;
}

bool SocketTree::hear_calls(CommId comm, net::Unpacker* unpacker, const Neighbour* from) {
  Calls calls;
  if (!unpack_calls(unpacker, ranks_, &calls)) return false;
  ControlComm* const member = find(comm);
  member != nullptr ? member->hear_calls(calls, from) : pass_on_calls(comm, std::move(calls), from);
  return true;
}

bool SocketTree::hear_inquiry(const Header& header, net::Unpacker* unpacker, Neighbour* from) {
  Inquiry inquiry;
  Absence absence;
  Answer answer;
  std::uint32_t token = 0;
  const bool from_below = !from->is_parent;
  if (header.kind == FrameKind::kAsk || header.kind == FrameKind::kProbe) {
    if ((header.kind == FrameKind::kAsk) != from_below || !unpack_inquiry(unpacker, &inquiry)) return false;
    on_inquiry(header.comm, header.kind, inquiry, from);
  } else if (header.kind == FrameKind::kHere) {
    if (!unpack_here(unpacker, &token)) return false;
    on_receipt(header.comm, token, from);
  } else if (header.kind == FrameKind::kAbsent) {
    if (!from_below || !unpack_absence(unpacker, ranks_, &absence)) return false;
    on_absence(header.comm, absence);
  } else {
    if (from_below || !unpack_answer(unpacker, ranks_, &answer)) return false;
    on_answer(header.comm, answer);
  }
  return true;
}

ControlComm* SocketTree::find(CommId comm) const {
  const auto found = comms_.find(comm);
  return found == comms_.end() ? nullptr : found->second;
}

// Of a communicator that this rank does not have, all that it has are as good as any to tell of it.
void SocketTree::on_damage(const Neighbour& from, CommId comm) {
  ControlComm* const member = find(comm);
  for (const auto& [id, each] : comms_) {
    if (member != nullptr && each != member) continue;
    const int rank = each->rank_of(from.rank);
    const std::string who = rank >= 0 ? describe_rank(rank, from.host, from.pid)
                                      : fmt::format("another rank of the job (host {}, pid {})", from.host, from.pid);
    each->fail({Code::kInternalError, who + " sent a damaged control message"});
  }
}

// Contacts are merged on their way as parts are: see control_comm_receive.cc. All have them before the first all-gather
// ends.
void SocketTree::on_contacts(std::vector<Contact> contacts, const Neighbour* from) {
  for (Contact& contact : contacts) {
    const RankSet rank(contact.rank, contact.rank + 1);
    contacts_told_[from->rank].add(rank);
    contact_ranks_.add(rank);
    contacts_.insert_or_assign(contact.rank, std::move(contact));
  }
  pass_on_contacts(false);
}

void SocketTree::pass_on_contacts(bool at_once) {
  const bool complete = contact_ranks_.size() == ranks_;
  bool waits = false;
  for (Neighbour* const neighbour : listeners()) {
    RankSet& told = contacts_told_[neighbour->rank];
    if (told.contains(contact_ranks_)) continue;
    if (!at_once && !complete && !(neighbour->is_parent && contact_ranks_.contains(tree_below(rank_, ranks_)))) {
      waits = true;
      continue;
    }
    std::vector<Contact> contacts;
    contact_ranks_.without(told).each([&](int rank) { contacts.push_back(contacts_.at(rank)); });
    send(pack_contacts(contacts), neighbour);
    told = contact_ranks_;
  }
  if (!waits) {
    contacts_due_ns_ = 0;
  } else if (contacts_due_ns_ == 0) {
    contacts_due_ns_ = now_ns() + contacts_wait_ms_ * 1'000'000;
  }
}

void SocketTree::pass_on_at_once() {
  pass_on_contacts(true);
  for (const auto& [id, comm] : comms_) comm->pass_on_at_once();
}

void SocketTree::pass_on_due() {
  if (contacts_due_ns_ != 0 && now_ns() >= contacts_due_ns_) {
    contacts_wait_ms_ = std::min(2 * contacts_wait_ms_, kLongestContactsMs);
    pass_on_contacts(true);
  }
  for (const auto& [id, comm] : comms_) comm->advance(now_ns());
}

// It has all contacts, if this rank has, and may have missed what else was said.
void SocketTree::meet(int rank) {
  contacts_told_.erase(rank);
  if (contact_ranks_.size() == ranks_) contacts_told_[rank] = contact_ranks_;
  for (const auto& [id, comm] : comms_) comm->meet(rank);
}

// The connection has ended. If the neighbour has said so before, that is as it should be.
void SocketTree::on_ended(Neighbour* neighbour) {
  if (!neighbour->ended || !neighbour->socket.valid()) return;
  neighbour->close();
  neighbour->writer = net::FrameWriter();
  forget_owing(neighbour->rank);
  // One that has not taken this rank for its parent may have found another by now. If it has died, it is missed.
  const bool was_here = neighbour->confirmed && !neighbour->said_bye;
  if (was_here && !departing_) on_death({neighbour->rank, neighbour->host, neighbour->pid}, neighbour);
  if (neighbour->is_parent && !neighbour->parting) look_for_parent();
}

// First the others: who learns of a death here may end this process.
void SocketTree::on_death(const Death& death, const Neighbour* from) {
  if (death.rank == rank_) return on_own_death();
  if (!dead_.emplace(death.rank, death).second) return;
  // What it has said goes before it.
  pass_on_at_once();
  flood(pack_death(death), from);
  flush();
  for (const auto& [id, comm] : comms_) comm->hear_death(death);
  for (Neighbour& neighbour : neighbours_) {
    if (neighbour.rank == death.rank && neighbour.socket.valid()) neighbour.ended = true;
  }
  await_those_below(death.rank);
}

// The others have given this rank up: its connections broke, or it was silent for too long.
void SocketTree::on_own_death() {
  stand_aside(Status::remote("the other ranks have lost the connection to this one and gone on without it"));
}

// No part of the tree any more: those below look for another parent.
void SocketTree::stand_aside(const Status& why) {
  broken_ = why;
  search_.reset();
  acceptor_.reset();
  awaited_.clear();
  for (const auto& [id, comm] : comms_) comm->fail_here(broken_);
  for (Neighbour& neighbour : neighbours_) neighbour.close();
}

}  // namespace tutti::internal::control
