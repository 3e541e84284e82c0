// What a communicator hears over the control tree.
#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "base/rank_list.h"
#include "control/control_comm.h"
#include "control/socket_tree.h"
#include "os/clock.h"

namespace tutti::internal::control {
namespace {

// No rank gives its part to a round before all have given theirs to the last one.
constexpr std::uint32_t kRoundsAhead = 1;
constexpr std::int64_t kLongestPartsMs = 400;
// While this rank still makes its part. Ranks that miss a decision decide themselves.
constexpr std::size_t kEarlyDecisions = 64;

std::string of_other_members(int rank) {
  const std::string who = rank >= 0 ? fmt::format("rank {}", rank) : "a rank that is not among these";
  return who + " has split off a communicator of other ranks, with the same id";
}

}  // namespace

std::shared_ptr<const ControlComm::Watching> ControlComm::watching() const {
  const MutexLock lock(mutex_);
  return watching_;
}

bool ControlComm::hear(const Header& header, net::Unpacker* unpacker, const std::string& frame, const Neighbour* from) {
  const int ranks = tree_->ranks();
  const FrameKind kind = header.kind;
  if (kind == FrameKind::kParts) {
    Parts parts;
    // Of other members the parts may have other places.
    const bool same = header.members == name_.members;
    if (!unpack_parts(unpacker, ranks, same ? static_cast<int>(members_.size()) : ranks, &parts)) return false;
    return !are_members(header.members, rank_of(parts.from)) || on_parts(std::move(parts), frame, from);
  }
  if (!are_members(header.members, -1)) return true;
  if (kind == FrameKind::kDecision) {
    std::string decision;
    if (!unpack_decision(unpacker, &decision)) return false;
    on_decision(std::move(decision));
    return true;
  }
  if (kind == FrameKind::kNotice) {
    Notice notice;
    if (!unpack_notice(unpacker, &notice)) return false;
    on_notice(notice, frame, from);
    return true;
  }
  if (kind == FrameKind::kLeaveNotices) {
    std::vector<LeaveNotice> leave_notices;
    if (!unpack_leave_notices(unpacker, static_cast<int>(members_.size()), &leave_notices)) return false;
    on_leave_notices(std::move(leave_notices), from);
    return true;
  }
  if (kind == FrameKind::kRefusal) {
    Refusal refusal;
    return unpack_refusal(unpacker, ranks, &refusal) && on_refusal(std::move(refusal), frame, from);
  }
  if (kind != FrameKind::kCompare || !unpacker->complete()) return false;
  on_compare(frame, from);
  return true;
}

// Whether a frame is of this communicator's members. `from`: the rank that made the frame; -1 if it is not known.
bool ControlComm::are_members(const std::string& members, int from) {
  if (members == name_.members) return true;
  fail({Code::kMismatch, of_other_members(from)});
  return false;
}

// ---- The all-gather -----------------------------------------------------------------------------
//
// Parts are merged on their way as leave notices are: upwards when all below this rank are there, downwards when all
// are. Those of ranks that come long before others go on without them, so that all know whose parts are missing.

bool ControlComm::on_parts(Parts parts, const std::string& frame, const Neighbour* from) {
  bool ahead = false;
  bool late = false;
  {
    const MutexLock lock(mutex_);
    ahead = is_before(next_round_ + kRoundsAhead, parts.round + 1);
    late = is_before(parts.round, next_round_) && !gatherings_.contains(parts.round);
    if (!ahead && !late) {
      Gathering& at = gathering(parts.round);
      if (from != nullptr) at.told[from->rank].add(parts.places);
      auto bytes = parts.bytes.begin();
      parts.places.each([&](int place) {
        if (!at.places.contains(place)) at.parts[static_cast<std::size_t>(place)] = std::move(*bytes);
        ++bytes;
      });
      at.places.add(parts.places);
      changed_.notify_all();
    }
  }
  if (ahead && id() == 0) return false;
  if (ahead) {
    // That rank gathers without this one.
    fail({Code::kMismatch, of_other_members(rank_of(parts.from))});
  } else if (late) {
    tree_->flood(frame, from);  // this rank has had all for long, and others may not
  } else {
    for (const int rank : ranks_at(parts.places)) heard_of_.insert(rank);
    pass_on_parts(parts.round, false);
  }
  return true;
}

void ControlComm::pass_on_parts(std::uint32_t round, bool at_once) {
  const RankSet& below = places_below();
  bool complete = false;
  bool waits = false;
  {
    const MutexLock lock(mutex_);
    const auto found = gatherings_.find(round);
    if (found == gatherings_.end()) return;
    Gathering& at = found->second;
    complete = at.places.size() == static_cast<int>(members_.size());
    for (Neighbour* const neighbour : tree_->listeners()) {
      RankSet& told = at.told[neighbour->rank];
      if (told.contains(at.places)) continue;
      if (!at_once && !complete && !(neighbour->is_parent && at.places.contains(below))) {
        waits = true;
        continue;
      }
      Parts parts{round, tree_->rank(), at.places.without(told), {}};
      parts.places.each([&](int place) { parts.bytes.push_back(at.parts[static_cast<std::size_t>(place)]); });
      tree_->send(pack_parts(name_, parts), neighbour);
      told = at.places;
    }
  }
  if (waits && parts_due_ns_ == 0) parts_due_ns_ = now_ns() + parts_wait_ms_ * 1'000'000;
  if (!complete) return;
  // This rank has all parts, and may be stopped from now on. So first it sends its own part to the others.
  tree_->flush();
  const MutexLock lock(mutex_);
  if (const auto found = gatherings_.find(round); found != gatherings_.end()) found->second.passed_on = true;
  changed_.notify_all();
}

void ControlComm::pass_on_all_parts() {
  std::vector<std::uint32_t> rounds;
  {
    const MutexLock lock(mutex_);
    for (const auto& [round, at] : gatherings_) rounds.push_back(round);
  }
  for (const std::uint32_t round : rounds) pass_on_parts(round, true);
  parts_due_ns_ = 0;
}

void ControlComm::pass_on_at_once() {
  pass_on_all_parts();
  pass_on_leave_notices(true);
}

std::int64_t ControlComm::due_ns() const {
  if (parts_due_ns_ == 0 || leave_notices_due_ns_ == 0) return parts_due_ns_ + leave_notices_due_ns_;
  return std::min(parts_due_ns_, leave_notices_due_ns_);
}

void ControlComm::advance(std::int64_t now_ns) {
  if (parts_due_ns_ != 0 && now_ns >= parts_due_ns_) {
    parts_wait_ms_ = std::min(2 * parts_wait_ms_, kLongestPartsMs);
    pass_on_all_parts();
  }
  if (leave_notices_due_ns_ != 0 && now_ns >= leave_notices_due_ns_) pass_on_leave_notices(true);
}

void ControlComm::meet(int job_rank) {
  told_.erase(job_rank);
  const MutexLock lock(mutex_);
  for (auto& [round, at] : gatherings_) at.told.erase(job_rank);
}

void ControlComm::on_decision(std::string decision) {
  std::shared_ptr<const Watching> watching;
  {
    const MutexLock lock(mutex_);
    watching = watching_;
    if (watching == nullptr && early_decisions_.size() < kEarlyDecisions) {
      early_decisions_.push_back(std::move(decision));
    }
  }
  if (watching != nullptr && watching->witness.decided) watching->witness.decided(decision);
}

// After the first failure of a communicator nothing is told any more.
void ControlComm::on_notice(const Notice& notice, const std::string& frame, const Neighbour* from) {
  if (std::exchange(any_notice_, true)) return;
  pass_on_at_once();  // what has come before it
  // First the others: who learns of the failure here may end this process.
  notice_ = frame;
  tree_->flood(frame, from);
  tree_->flush();
  fail_here(Status(notice.code, notice.text));
}

void ControlComm::fail(const Notice& notice) {
  on_notice(notice, pack_notice(name_, notice), nullptr);
}

// The other ranks only: this one knows.
void ControlComm::tell_failure(const Notice& notice) {
  if (std::exchange(any_notice_, true)) return;
  pass_on_at_once();
  notice_ = pack_notice(name_, notice);
  tree_->flood(notice_, nullptr);
}

// In the order in which it was said first; what other ranks have said as well, which may be gone, or not heard where a
// member that knows it does not pass it on.
void ControlComm::say_again() {
  for (const std::string& frame : told()) tree_->flood(frame, nullptr);
  if (asked_for_calls_) {
    tree_->flood(pack_compare(name_), nullptr);
    tree_->pass_on_calls(id(), {false, tree_->rank(), own_calls().calls}, nullptr);
  }
}

void ControlComm::fail_here(const Status& status) noexcept {
  std::shared_ptr<const Watching> watching;
  {
    const MutexLock lock(mutex_);
    if (failure_.is_ok()) failure_ = status;
    watching = watching_;
    changed_.notify_all();
  }
  if (watching != nullptr) watching->failure->fail(status);
}

// All ranks are told of the death itself.
void ControlComm::hear_death(const Death& death) {
  const int rank = rank_of(death.rank);
  if (rank < 0 || has_departed(rank)) return;
  if (std::exchange(any_notice_, true)) return;
  fail_here(Status::remote(describe_rank(rank, death.host, death.pid) + " died: connection lost"));
}

// One that has not made its part yet will not.
void ControlComm::hear_bye(int job_rank) {
  const int rank = rank_of(job_rank);
  if (id() == 0 || rank < 0 || heard_of_.contains(rank) || has_departed(rank)) return;
  fail({Code::kRemoteError, list_ranks({rank}) + " left before it had made its part of this communicator"});
}

void ControlComm::hear_left(CommId comm, int job_rank) {
  if (gives_up_ && comm == parent_) hear_bye(job_rank);
}

void ControlComm::hear_departed(const ControlComm& comm) {
  if (!gives_up_) return;
  for (const LeaveNotice& left : comm.departed()) {
    for (const int rank : comm.ranks_at(left.places)) hear_left(comm.id(), comm.job_rank_of(rank));
  }
}

Whereabouts ControlComm::whereabouts() const {
  const auto watching = this->watching();
  return watching != nullptr && watching->witness.where ? watching->witness.where() : Whereabouts{};
}

// In the answer's own numbering only members count.
void ControlComm::answered(const Answer& answer) {
  const auto watching = this->watching();
  if (watching == nullptr || !watching->witness.answered) return;
  Answer own{answer.question, {}};
  for (Absence absence : answer.absent) {
    absence.rank = rank_of(absence.rank);
    if (absence.rank >= 0) own.absent.push_back(absence);
  }
  std::sort(own.absent.begin(), own.absent.end(), [](const Absence& a, const Absence& b) { return a.rank < b.rank; });
  watching->witness.answered(own);
}

}  // namespace tutti::internal::control
