// What comes to a rank of the control tree from its neighbours, and what it tells them of that.
#include <algorithm>
#include <utility>

#include "bootstrap/socket_tree.h"
#include "net/frame.h"

namespace tutti::internal::control {

void SocketTree::read_from(Neighbour* from) {
  while (from->socket.valid()) {
    Result<net::FrameReader::Progress> progress = from->reader.read(from->socket.get());
    if (progress.is_ok() && *progress == net::FrameReader::Progress::kBlocked) return;
    if (!progress.is_ok() || *progress == net::FrameReader::Progress::kClosed) return lost(from);
    handle(from, from->reader.take());
  }
}

void SocketTree::handle(Neighbour* from, const std::string& frame) {
  if (frame.empty()) return;  // the parent's welcome, which this rank has not waited for: it tells of a failure
  net::Unpacker unpacker(frame);
  const auto kind = static_cast<Kind>(unpacker.number<std::uint8_t>());
  if (kind == Kind::kGather || kind == Kind::kAll) {
    Parts parts;
    if ((kind == Kind::kAll) == from->is_parent && unpack_parts(&unpacker, ranks_, &parts)) {
      from->inbox.push_back(std::move(parts));
      return;
    }
  } else if (kind == Kind::kNotice) {
    Notice notice;
    if (unpack_notice(&unpacker, &notice)) return on_notice(notice, from);
  } else if (kind == Kind::kCalls) {
    Calls calls;
    if (!from->is_parent && unpack_calls(&unpacker, ranks_, &calls)) return on_calls(calls);
  } else if (kind == Kind::kAsk || kind == Kind::kProbe) {
    Inquiry inquiry;
    const bool sensible = (kind == Kind::kProbe) == from->is_parent;
    if (sensible && unpack_inquiry(&unpacker, &inquiry)) return hear_inquiry(kind, inquiry, from);
  } else if (kind == Kind::kHere) {
    const auto token = unpacker.number<std::uint32_t>();
    if (unpacker.complete()) return hear_receipt(token, from);
  } else if (kind == Kind::kAbsent) {
    Absence absence;
    if (!from->is_parent && unpack_absence(&unpacker, ranks_, &absence)) return hear_absence(absence);
  } else if (kind == Kind::kAnswer) {
    Answer answer;
    if (from->is_parent && unpack_answer(&unpacker, ranks_, &answer)) return hear_answer(answer);
  } else if (kind == Kind::kLeaveNotice) {
    LeaveNotice leave_notice;
    if (unpack_leave_notice(&unpacker, ranks_, &leave_notice)) return on_leave_notice(leave_notice, from);
  } else if (kind == Kind::kCompare) {
    if (unpacker.complete()) return ask_for_calls(from);
  }
  on_notice({Code::kInternalError, rank_, -1, from->who + " sent a damaged control message"}, nullptr);
}

// The connection has ended. After a leave notice that is as it should be.
void SocketTree::lost(Neighbour* neighbour) {
  if (!neighbour->socket.valid()) return;
  neighbour->socket.reset();
  if (neighbour->sent_leave_notice || left_) return;
  on_notice({Code::kRemoteError, rank_, neighbour->rank, neighbour->who + " died: connection lost"}, neighbour);
}

// After the first notice only further deaths are told.
void SocketTree::on_notice(const Notice& notice, Neighbour* from) {
  if (gathering_ && from != nullptr && from->is_parent && !from->inbox.empty()) {
    notices_.emplace_back(notice, from);
    return;
  }
  const bool new_death = notice.failed >= 0 && known_dead_.insert(notice.failed).second;
  if (any_notice_ && !new_death) return;
  any_notice_ = true;
  // First the others: who learns of the failure here may end this process.
  flood(pack_notice(notice), from);
  if (failure_) {
    failure_->fail(Status(notice.code, notice.text));
  } else if (early_failure_.is_ok()) {
    early_failure_ = Status(notice.code, notice.text);
  }
}

// Upwards only as far as it is new, so that a thousand ranks that wait for one cost one message each.
void SocketTree::on_calls(const Calls& calls) {
  bool is_new = false;
  const Status known = ledger_.add(calls.rank, calls.records, &is_new);
  if (!known.is_ok()) return on_notice({known.code(), rank_, -1, known.message()}, nullptr);
  for (Neighbour& neighbour : neighbours_) {
    if (!is_new || !neighbour.is_parent || !neighbour.socket.valid()) continue;
    neighbour.writer.queue(pack_calls(calls));
    flush(&neighbour);
  }
}

void SocketTree::pass_on_kept() {
  if (gathering_) return;
  for (const auto& [notice, from] : std::exchange(notices_, {})) on_notice(notice, from);
  for (const auto& [leave_notice, from] : std::exchange(leave_notices_, {}))
    flood(pack_leave_notice(leave_notice), from);
}

void SocketTree::flood(const std::string& frame, const Neighbour* except) {
  for (Neighbour& neighbour : neighbours_) {
    if (&neighbour == except || !neighbour.socket.valid()) continue;
    neighbour.writer.queue(frame);
    flush(&neighbour);
  }
}

// A broken connection is left for reading to discover, since a last message may still be in it.
void SocketTree::flush(Neighbour* neighbour) {
  const Status sent = neighbour->writer.flush(neighbour->socket.get());
  if (!sent.is_ok()) neighbour->writer = net::FrameWriter();
  if (epoll_.valid()) arm(neighbour);
}

bool SocketTree::all_sent() const {
  return std::all_of(neighbours_.begin(), neighbours_.end(),
                     [](const Neighbour& neighbour) { return !neighbour.socket.valid() || neighbour.writer.empty(); });
}

}  // namespace tutti::internal::control
