#include "control/frame_router.h"

#include <fmt/core.h>

#include <utility>

#include "base/rank_list.h"
#include "control/comm_agent.h"
#include "net/frame.h"

namespace tutti::internal::control {

void FrameRouter::read_from(Neighbour* from) {
  while (from->stream.valid() && !from->ended) {
    Result<net::FrameReader::Progress> progress = from->reader.read(&from->stream);
    if (progress.is_ok() && *progress == net::FrameReader::Progress::kBlocked) return;
    if (progress.is_ok() && *progress == net::FrameReader::Progress::kFrame) {
      handle(from, from->reader.take());
    } else {
      from->ended = true;
    }
  }
}

void FrameRouter::handle(Neighbour* from, const std::string& frame) {
  from->confirmed = true;
  // The parent's welcome, if this rank has not waited for it because it only reports a failure.
  if (frame.empty()) return;
  net::Unpacker unpacker(frame);
  Header header;
  if (unpack_header(&unpacker, &header) && hear(header, &unpacker, frame, from)) return;
  on_damage(*from, header.comm);
}

bool FrameRouter::hear(const Header& header, net::Unpacker* unpacker, const std::string& frame, Neighbour* from) {
  if (header.kind < FrameKind::kParts) return hear_of_ranks(header.kind, unpacker, frame, from);
  if (header.kind < FrameKind::kCalls) return hear_for_members(header, unpacker, frame, from);
  if (header.kind == FrameKind::kCalls) return hear_calls(header.comm, unpacker, from);
  if (header.kind >= FrameKind::kProposals) return agreements_.hear(header, unpacker, from);
  return inquiries_.hear(header, unpacker, from);
}

bool FrameRouter::hear_of_ranks(FrameKind kind, net::Unpacker* unpacker, const std::string& frame, Neighbour* from) {
  int rank = -1;
  Death death;
  std::vector<Contact> contacts;
  Attachment attachment;
  if (kind == FrameKind::kBye) {
    if (!unpack_bye(unpacker, view_.ranks(), &rank)) return false;
    events_.on_bye(rank, frame, from);
  } else if (kind == FrameKind::kDeath) {
    if (!unpack_death(unpacker, view_.ranks(), &death)) return false;
    events_.on_death(death, from);
  } else if (kind == FrameKind::kContacts) {
    if (!unpack_contacts(unpacker, view_.ranks(), &contacts)) return false;
    events_.on_contacts(std::move(contacts), from);
  } else {
    if (!unpack_attachment(unpacker, view_.ranks(), &attachment)) return false;
    events_.on_attachment(attachment, frame, from);
  }
  return true;
}

// Messages that every rank that knows them may resend are forwarded by the member itself, once, and so are messages
// that are merged on the way.
bool FrameRouter::hear_for_members(const Header& header, net::Unpacker* unpacker, const std::string& frame,
                                   const Neighbour* from) {
  CommAgent* const comm = comms_.find(header.comm);
  if (header.kind == FrameKind::kClaim) {
    if (!unpacker->complete()) return false;
    if (comm != nullptr && comm->members().name().members != header.members) {
      return comm->hear(header, unpacker, frame, from);  // which reports the clash
    }
    claim({header.comm, header.members});
    return true;
  }
  // All ranks of the job hear of a clash, also by way of members that have failed already.
  if (header.kind == FrameKind::kClash) {
    tell_clash(frame, from);
    if (comm != nullptr) return comm->hear(header, unpacker, frame, from);
    keep_early(header, frame);
    return true;
  }
  const bool once = header.kind != FrameKind::kDecision;
  const bool known = once && (comm != nullptr || !keep_passed(header.kind, frame));
  if (!known) neighbours_.flood_to(header.members, frame, from);
  if (comm != nullptr) return comm->hear(header, unpacker, frame, from);
  keep_early(header, frame);
  return true;
}

// Kept here as well: the rank that forwards it next may die first.
void FrameRouter::tell_clash(const std::string& frame, const Neighbour* from) {
  if (keep_passed(FrameKind::kClash, frame)) neighbours_.flood(frame, from);
}

void FrameRouter::claim(const CommName& comm) {
  if (claims_.add(comm.id, comm.members)) {
    if (Neighbour* const up = neighbours_.parent(); up != nullptr) neighbours_.send(pack_claim(comm), up);
    return;
  }
  const std::string clash = pack_notice(comm, clash_of_ids(-1), FrameKind::kClash);
  tell_clash(clash, nullptr);
  net::Unpacker unpacker(clash);
  Header header;
  CommAgent* const member = comms_.find(comm.id);
  if (member != nullptr && unpack_header(&unpacker, &header)) (void)member->hear(header, &unpacker, clash, nullptr);
}

// The job's first communicator exists from the beginning.
void FrameRouter::keep_early(const Header& header, const std::string& frame) {
  if (header.comm == 0 || !is_member(header.members, view_.rank()) || comms_.has_left(header.comm)) return;
  early_.keep(header, frame, view_.ranks());
}

// False if it has been forwarded before.
bool FrameRouter::keep_passed(FrameKind kind, const std::string& frame) {
  if (!notices_.keep_passed(kind, frame)) return false;
  healing_.note_passed();
  return true;
}

void FrameRouter::replay_early(CommAgent* comm) {
  const EarlyFrames::Kept kept = early_.take(comm->id());
  if (!kept.lost.empty()) {
    comm->fail(
        {Code::kInvalidUsage,
         fmt::format("rank {} came to this communicator too late: the other ranks have sent it more than {} meanwhile",
                     comm->members().rank_of(view_.rank()), kept.lost)});
  }
  for (const std::string& frame : kept.frames) {
    net::Unpacker unpacker(frame);
    Header header;
    if (unpack_header(&unpacker, &header)) (void)comm->hear(header, &unpacker, frame, nullptr);
  }
}

bool FrameRouter::hear_calls(CommId comm, net::Unpacker* unpacker, const Neighbour* from) {
  Calls calls;
  if (!unpack_calls(unpacker, view_.ranks(), &calls)) return false;
  CommAgent* const member = comms_.find(comm);
  member != nullptr ? member->hear_calls(calls, from) : pass_on_calls(comm, std::move(calls), from);
  return true;
}

// Sends the calls up to the next member, which keeps them. Members without a member above them are reached through
// other branches: every non-member also sends the calls down its other branches.
void FrameRouter::pass_on_calls(CommId comm, Calls calls, const Neighbour* from) {
  const bool is_member = comms_.find(comm) != nullptr;
  if (!calls.down) {
    if (Neighbour* const up = neighbours_.parent(); up != nullptr) neighbours_.send(pack_calls(comm, calls), up);
  }
  if (is_member) return;
  calls.down = true;
  neighbours_.send_down(pack_calls(comm, calls), from);
}

// If this rank does not have the communicator, any of its communicators can report the damage.
void FrameRouter::on_damage(const Neighbour& from, CommId comm) {
  CommAgent* const member = comms_.find(comm);
  for (const auto& [id, each] : comms_.all()) {
    if (member != nullptr && each != member) continue;
    const int rank = each->members().rank_of(from.rank);
    const std::string who = rank >= 0 ? describe_rank(rank, from.host, from.pid)
                                      : fmt::format("another rank of the job (host {}, pid {})", from.host, from.pid);
    each->fail({Code::kInternalError, who + " sent a damaged control message"});
  }
}

}  // namespace tutti::internal::control
