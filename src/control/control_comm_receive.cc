// What a communicator hears over the control tree.
#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "base/rank_list.h"
#include "control/control_comm.h"
#include "control/socket_tree.h"

namespace tutti::internal::control {
namespace {

// No rank gives its part to a round before all have given theirs to the last one.
constexpr std::uint32_t kRoundsAhead = 1;
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
  const Kind kind = header.kind;
  if (kind == Kind::kPart) {
    Part part;
    if (!unpack_part(unpacker, ranks, &part)) return false;
    return !are_members(header.members, rank_of(part.rank)) || on_part(std::move(part));
  }
  if (!are_members(header.members, -1)) return true;
  if (kind == Kind::kDecision) {
    std::string decision;
    if (!unpack_decision(unpacker, &decision)) return false;
    on_decision(std::move(decision));
    return true;
  }
  if (kind == Kind::kNotice) {
    Notice notice;
    if (!unpack_notice(unpacker, &notice)) return false;
    on_notice(notice, frame, from);
    return true;
  }
  if (kind == Kind::kLeaveNotices) {
    std::vector<LeaveNotice> leave_notices;
    if (!unpack_leave_notices(unpacker, static_cast<int>(members_.size()), &leave_notices)) return false;
    on_leave_notices(std::move(leave_notices), from);
    return true;
  }
  if (kind == Kind::kRefusal) {
    Refusal refusal;
    return unpack_refusal(unpacker, ranks, &refusal) && on_refusal(std::move(refusal), frame, from);
  }
  if (kind != Kind::kCompare || !unpacker->complete()) return false;
  on_compare(frame, from);
  return true;
}

// Of a frame. `from`: who has made it; -1: that is not known.
bool ControlComm::are_members(const std::string& members, int from) {
  if (members == name_.members) return true;
  fail({Code::kMismatch, of_other_members(from)});
  return false;
}

bool ControlComm::on_part(Part part) {
  const int rank = rank_of(part.rank);
  if (rank >= 0) {
    heard_of_.insert(rank);
    const MutexLock lock(mutex_);
    if (!is_before(next_round_ + kRoundsAhead, part.round + 1)) {
      if (is_before(part.round, next_round_) && !parts_.contains(part.round)) return true;  // known long since
      parts_[part.round].emplace(rank, std::move(part.bytes));
      changed_.notify_all();
      return true;
    }
  }
  if (id() == 0) return false;
  // That rank gathers without this one.
  fail({Code::kMismatch, of_other_members(rank)});
  return true;
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
