// Ranks that leave a communicator: what they say of their calls, and whether all have called the same. And what ranks
// have refused.
#include <utility>

#include "control/call_comparison.h"
#include "control/control_comm.h"
#include "control/socket_tree.h"
#include "os/clock.h"

namespace tutti::internal::control {
namespace {

// How often a rank that waits for the others' leave notices looks whether it still should.
constexpr std::int64_t kLookMs = 20;
// The tree's thread answers in microseconds, unless the machine is very busy.
constexpr std::int64_t kCompareMs = 1000;

}  // namespace

CallSummary ControlComm::own_calls() const {
  const auto watching = this->watching();
  return watching != nullptr && watching->witness.calls ? watching->witness.calls() : CallSummary();
}

bool ControlComm::on_leave_notice(const LeaveNotice& leave_notice, const std::string& frame, const Neighbour* from) {
  const int rank = rank_of(leave_notice.rank);
  if (rank < 0) return any_notice_;
  // A member that came to hear of it late passes it on in all directions, back to this one as well.
  if (rank == rank_) return true;
  std::shared_ptr<const Watching> watching;
  {
    const MutexLock lock(mutex_);
    if (!departed_.emplace(rank, leave_notice.calls).second) return true;
    watching = watching_;
    changed_.notify_all();
  }
  last_leave_ns_ = now_ns();
  tree_->flood(frame, from);
  // Who sees that it has left may compare.
  if (watching != nullptr) watching->failure->set_departed({rank, leave_notice.calls.operations});
  judge(rank, leave_notice.calls);
  tell_who_waits();
  tree_->tell_left(id_, leave_notice.rank);
  return true;
}

std::map<int, CallSummary> ControlComm::departed() const {
  const MutexLock lock(mutex_);
  return departed_;
}

// A rank that has not sent its own may still call what the other has called.
void ControlComm::judge(int rank, const CallSummary& calls) {
  const auto watching = this->watching();
  if (watching == nullptr || watching->failure->failed()) return;
  const Status judged =
      parted_ ? difference(rank_, own_parting_, rank, calls) : contradiction(rank_, own_calls(), rank, calls);
  if (!judged.is_ok()) fail({judged.code(), judged.message()});
}

void ControlComm::judge_departed() {
  for (const auto& [rank, calls] : departed()) judge(rank, calls);
}

Status ControlComm::compare_with_departed() {
  if (tree_->is_forked() || watching() == nullptr) return {};
  for (const auto& [rank, calls] : departed()) {
    if (Status s = contradiction(rank_, own_calls(), rank, calls); !s.is_ok()) return s;
  }
  return {};
}

// Once: this rank calls nothing more.
void ControlComm::send_leave_notice() {
  if (std::exchange(parted_, true)) return;
  own_parting_ = own_calls();
  last_leave_ns_ = now_ns();
  tree_->flood(leave_notice(), nullptr);
  judge_departed();
  tell_who_waits();
}

std::string ControlComm::leave_notice() const {
  return pack_leave_notice(id_, {tree_->rank(), own_parting_});
}

std::vector<std::string> ControlComm::farewell() const {
  std::vector<std::string> result;
  if (!is_over()) result = own_parts_;
  if (const auto own = refusals_.find(rank_); own != refusals_.end()) result.push_back(own->second.frame);
  if (!notice_.empty()) result.push_back(notice_);
  result.push_back(leave_notice());
  return result;
}

std::vector<std::string> ControlComm::told() const {
  std::vector<std::string> result;
  if (!is_over()) result = own_parts_;
  for (const auto& [rank, refusal] : refusals_) result.push_back(refusal.frame);
  if (!notice_.empty()) result.push_back(notice_);
  for (const auto& [rank, calls] : departed()) {
    result.push_back(pack_leave_notice(id_, {members_[static_cast<std::size_t>(rank)], calls}));
  }
  if (parted_) result.push_back(leave_notice());
  return result;
}

bool ControlComm::may_have_left(int job_rank, std::int64_t recent_ns) const {
  const int rank = rank_of(job_rank);
  if (rank < 0 || last_leave_ns_ > recent_ns) return true;
  const MutexLock lock(mutex_);
  return departed_.contains(rank);
}

bool ControlComm::is_over() const {
  const MutexLock lock(mutex_);
  return all_parted_;
}

void ControlComm::tell_who_waits() {
  const MutexLock lock(mutex_);
  compared_ = parted_;
  all_parted_ = parted_ && departed_.size() + 1 == members_.size();
  changed_.notify_all();
}

// Waits for something to change; false if nothing is waited for any longer.
bool ControlComm::look_again(Deadline deadline) {
  if (watching_->failure->failed() || deadline.passed()) return false;
  changed_.wait_until(mutex_, Deadline::after_ms(kLookMs));
  return true;
}

bool ControlComm::finish(std::int64_t wait_ms) {
  if (tree_->is_forked()) return false;
  const MutexLock lock(mutex_);
  if (mute() || watching_ == nullptr) return false;
  commands_.finishing = true;
  tree_->signal();
  const Deadline compared = Deadline::after_ms(kCompareMs);
  while (!compared_ && look_again(compared)) {
  }
  const Deadline all_parted = Deadline::after_ms(wait_ms);
  while (!all_parted_ && look_again(all_parted)) {
  }
  return all_parted_;
}

// ---- What ranks have refused --------------------------------------------------------------------

void ControlComm::report_refusal(const Refusal& refusal, std::int64_t wait_ms) {
  if (tree_->is_forked()) return;
  const Deadline deadline = Deadline::after_ms(wait_ms);
  const MutexLock lock(mutex_);
  if (mute() || watching_ == nullptr) return;
  // Another thread may have brought a later one.
  if (!commands_.refusal || is_before(commands_.refusal->serial, refusal.serial)) commands_.refusal = refusal;
  tree_->signal();
  while (is_before(refusal_told_, refusal.serial) && !mute() && !deadline.passed()) {
    changed_.wait_until(mutex_, deadline);
  }
}

void ControlComm::send_refusal(Refusal refusal) {
  const std::uint32_t serial = refusal.serial;
  refusal.rank = tree_->rank();
  const std::string frame = pack_refusal(id_, refusal);
  if (!any_notice_) (void)on_refusal(std::move(refusal), frame, nullptr);
  const MutexLock lock(mutex_);
  if (is_before(refusal_told_, serial)) refusal_told_ = serial;
  changed_.notify_all();
}

// First the others: this rank's program may end the process now.
bool ControlComm::on_refusal(Refusal refusal, const std::string& frame, const Neighbour* from) {
  refusal.rank = rank_of(refusal.rank);
  if (refusal.rank < 0) return true;
  const auto [known, is_first] = refusals_.try_emplace(refusal.rank);
  if (!is_first && !is_before(known->second.serial, refusal.serial)) return true;
  known->second = {refusal.serial, frame};
  tree_->flood(frame, from);
  tree_->flush();
  if (refusal.rank == rank_) return true;
  std::shared_ptr<const Watching> watching;
  {
    const MutexLock lock(mutex_);
    watching = watching_;
    if (watching == nullptr) early_refusals_[refusal.rank] = refusal;
  }
  if (watching != nullptr && watching->witness.refused) watching->witness.refused(refusal);
  return true;
}

// ---- Comparing while nobody leaves --------------------------------------------------------------

// Upwards only as far as they are new, so that a thousand ranks that wait for one cost one message each.
void ControlComm::hear_calls(Calls calls, const Neighbour* from) {
  if (rank_of(calls.rank) < 0) return;  // of another communicator with the same id: all are told so
  bool is_new = false;
  const Status known = ledger_.add(rank_of(calls.rank), calls.records, &is_new);
  if (!known.is_ok()) return fail({known.code(), known.message()});
  if (is_new && !calls.down) tree_->pass_on_calls(id_, std::move(calls), from);
}

void ControlComm::report_own(std::vector<CallRecord> calls) {
  hear_calls({false, tree_->rank(), std::move(calls)}, nullptr);
}

// Once in the life of a communicator: who asks knows that ranks differ, and no operation succeeds after that.
void ControlComm::on_compare(const std::string& frame, const Neighbour* from) {
  if (std::exchange(asked_for_calls_, true)) return;
  tree_->flood(frame, from);
  report_own(own_calls().calls);
  // A rank that has left cannot be asked, but has told.
  for (const auto& [rank, summary] : departed()) {
    hear_calls({false, members_[static_cast<std::size_t>(rank)], summary.calls}, nullptr);
  }
}

}  // namespace tutti::internal::control
