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

bool ControlComm::hear(Kind kind, net::Unpacker* unpacker, const std::string& frame, const Neighbour* from) {
  const int ranks = tree_->ranks();
  if (kind == Kind::kMembers) {
    Members members;
    return unpack_members(unpacker, ranks, &members) && on_members(members);
  }
  if (kind == Kind::kPart) {
    Part part;
    return unpack_part(unpacker, ranks, &part) && on_part(std::move(part));
  }
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
  if (kind == Kind::kLeaveNotice) {
    LeaveNotice leave_notice;
    return unpack_leave_notice(unpacker, ranks, &leave_notice) && on_leave_notice(leave_notice, frame, from);
  }
  if (kind == Kind::kRefusal) {
    Refusal refusal;
    return unpack_refusal(unpacker, ranks, &refusal) && on_refusal(std::move(refusal), frame, from);
  }
  if (kind != Kind::kCompare || !unpacker->complete()) return false;
  on_compare(frame, from);
  return true;
}

bool ControlComm::on_members(const Members& members) {
  const int from = rank_of(members.from);
  const bool same =
      members.ranks.size() == members_.size() &&
      std::all_of(members.ranks.begin(), members.ranks.end(), [&](int rank) { return rank_of(rank) >= 0; });
  if (from >= 0) introduced_.insert(from);
  if (from >= 0 && same) return true;
  fail({Code::kMismatch, of_other_members(from)});
  return true;
}

bool ControlComm::on_part(Part part) {
  const int rank = rank_of(part.rank);
  if (rank >= 0) {
    const MutexLock lock(mutex_);
    if (!is_before(next_round_ + kRoundsAhead, part.round + 1)) {
      if (is_before(part.round, next_round_) && !parts_.contains(part.round)) return true;  // known long since
      parts_[part.round].emplace(rank, std::move(part.bytes));
      changed_.notify_all();
      return true;
    }
  }
  if (id_ == 0) return false;
  // That rank gathers without this one. Who its members are it may have said before this rank had made its part.
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
  on_notice(notice, pack_notice(id_, notice), nullptr);
}

// The other ranks only: this one knows.
void ControlComm::tell_failure(const Notice& notice) {
  if (std::exchange(any_notice_, true)) return;
  notice_ = pack_notice(id_, notice);
  tree_->flood(notice_, nullptr);
}

// In the order in which it was said first; what other ranks have said as well, which may be gone, or not heard where a
// member that knows it does not pass it on.
void ControlComm::say_again() {
  introduce();
  for (const std::string& frame : told()) tree_->flood(frame, nullptr);
  if (asked_for_calls_) {
    tree_->flood(pack_compare(id_), nullptr);
    tree_->pass_on_calls(id_, {false, tree_->rank(), own_calls().calls}, nullptr);
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
  if (rank < 0 || departed().contains(rank)) return;
  if (std::exchange(any_notice_, true)) return;
  fail_here(Status::remote(describe_rank(rank, death.host, death.pid) + " died: connection lost"));
}

// One that has not made its part yet will not.
void ControlComm::hear_bye(int job_rank) {
  const int rank = rank_of(job_rank);
  if (id_ == 0 || rank < 0 || introduced_.contains(rank) || departed().contains(rank)) return;
  fail({Code::kRemoteError, list_ranks({rank}) + " left before it had made its part of this communicator"});
}

void ControlComm::hear_left(CommId comm, int job_rank) {
  if (gives_up_ && comm == parent_) hear_bye(job_rank);
}

void ControlComm::hear_departed(const ControlComm& comm) {
  if (!gives_up_) return;
  for (const auto& [rank, calls] : comm.departed()) hear_left(comm.id(), comm.members_[static_cast<std::size_t>(rank)]);
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
