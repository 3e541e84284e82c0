// Ranks that leave a communicator: what they say of their calls, and whether all have called the same. And what ranks
// have refused.
#include <algorithm>
#include <utility>

#include "control/call_comparison.h"
#include "control/control_comm.h"
#include "control/socket_tree.h"
#include "control/tree_shape.h"
#include "os/clock.h"

namespace tutti::internal::control {
namespace {

// How often a rank that waits for the others' leave notices looks whether it still should.
constexpr std::int64_t kLookMs = 20;
// The tree's thread answers in microseconds, unless the machine is very busy.
constexpr std::int64_t kCompareMs = 1000;
// Leave notices that wait so long for others to be merged with go on without them.
constexpr std::int64_t kMergeMs = 20;

}  // namespace

CallSummary ControlComm::own_calls() const {
  const auto watching = this->watching();
  return watching != nullptr && watching->witness.calls ? watching->witness.calls() : CallSummary();
}

// ---- Leave notices -------------------------------------------------------------------------------
//
// Ranks usually leave together, after the same calls. So leave notices are merged: a rank passes them upwards when all
// members below it have left, and the topmost passes them down when all have. What is not merged in kMergeMs goes on
// as it is. Of ranks with equal calls one notice names all, and without the calls if these are all members.

void ControlComm::on_leave_notices(std::vector<LeaveNotice> leave_notices, const Neighbour* from) {
  for (const LeaveNotice& leave_notice : leave_notices) {
    std::shared_ptr<const Watching> watching;
    RankSet is_new;
    {
      const MutexLock lock(mutex_);
      is_new = add_departed(leave_notice);
      watching = watching_;
      changed_.notify_all();
    }
    if (from != nullptr) told_[from->rank].add(leave_notice.places);
    if (is_new.empty()) continue;
    last_leave_ns_ = now_ns();
    // Who sees that they have left may compare.
    const std::vector<int> ranks = ranks_at(is_new);
    for (const int rank : ranks) {
      heard_of_.insert(rank);
      if (watching != nullptr) watching->failure->set_departed({rank, leave_notice.calls.operations});
    }
    judge(ranks.front(), leave_notice.calls);
    for (const int rank : ranks) tree_->tell_left(id(), job_rank_of(rank));
  }
  tell_who_waits();
  pass_on_leave_notices(false);
}

RankSet ControlComm::add_departed(const LeaveNotice& leave_notice) {
  RankSet is_new = leave_notice.places.without(departed_places_);
  if (is_new.empty()) return is_new;
  departed_places_.add(is_new);
  const auto same = std::find_if(departed_.begin(), departed_.end(), [&](const LeaveNotice& known) {
    return known.calls.operations == leave_notice.calls.operations && known.calls.hash == leave_notice.calls.hash;
  });
  if (same == departed_.end()) {
    departed_.push_back({is_new, leave_notice.calls});
  } else {
    same->places.add(is_new);
  }
  return is_new;
}

void ControlComm::pass_on_leave_notices(bool at_once) {
  pass_on_all_parts();  // a leave notice without the part would be taken for a failure
  RankSet all;
  {
    const MutexLock lock(mutex_);
    all = departed_places_;
  }
  const bool complete = all.size() == static_cast<int>(members_.size());
  bool waits = false;
  for (Neighbour* const neighbour : tree_->listeners()) {
    RankSet& told = told_[neighbour->rank];
    if (told.contains(all) || !tree_->leads_to(name_.members, *neighbour)) continue;
    if (!at_once && !complete && !(neighbour->is_parent && all.contains(places_below()))) {
      waits = true;
      continue;
    }
    std::vector<LeaveNotice> notices = departed();
    for (LeaveNotice& notice : notices) {
      notice.places = notice.places.without(told);
      if (complete && notices.size() == 1) notice.calls.calls.clear();
    }
    std::erase_if(notices, [](const LeaveNotice& notice) { return notice.places.empty(); });
    tree_->send(pack_leave_notices(name_, notices), neighbour);
    told = all;
  }
  if (!waits) {
    leave_notices_due_ns_ = 0;
  } else if (leave_notices_due_ns_ == 0) {
    leave_notices_due_ns_ = now_ns() + kMergeMs * 1'000'000;
  }
}

const RankSet& ControlComm::places_below() {
  const auto place = [this](int job_rank) {
    const auto at = std::lower_bound(by_job_rank_.begin(), by_job_rank_.end(), job_rank,
                                     [this](int rank, int wanted) { return job_rank_of(rank) < wanted; });
    return static_cast<int>(at - by_job_rank_.begin());
  };
  if (!below_.empty()) return below_;
  const RankSet below = tree_below(tree_->rank(), tree_->ranks());
  for (const RankSet::Range& range : below.ranges()) {
    below_.add(RankSet(place(range.first), place(range.end)));
  }
  return below_;
}

// In the order of their places.
std::vector<int> ControlComm::ranks_at(const RankSet& places) const {
  std::vector<int> ranks;
  places.each([&](int place) { ranks.push_back(by_job_rank_[static_cast<std::size_t>(place)]); });
  return ranks;
}

int ControlComm::place_of(int rank) const {
  const auto at = std::lower_bound(by_job_rank_.begin(), by_job_rank_.end(), job_rank_of(rank),
                                   [this](int one, int wanted) { return job_rank_of(one) < wanted; });
  return static_cast<int>(at - by_job_rank_.begin());
}

bool ControlComm::has_departed(int rank) const {
  const MutexLock lock(mutex_);
  return departed_places_.contains(place_of(rank));
}

std::vector<LeaveNotice> ControlComm::departed() const {
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
  for (const LeaveNotice& left : departed()) judge(ranks_at(left.places).front(), left.calls);
}

Status ControlComm::compare_with_departed() {
  if (tree_->is_forked() || watching() == nullptr) return {};
  for (const LeaveNotice& left : departed()) {
    const int rank = ranks_at(left.places).front();
    if (Status s = contradiction(rank_, own_calls(), rank, left.calls); !s.is_ok()) return s;
  }
  return {};
}

// Once: this rank calls nothing more.
void ControlComm::send_leave_notice() {
  if (std::exchange(parted_, true)) return;
  own_parting_ = own_calls();
  last_leave_ns_ = now_ns();
  const int place = place_of(rank_);
  {
    const MutexLock lock(mutex_);
    add_departed({RankSet(place, place + 1), own_parting_});
  }
  judge_departed();
  tell_who_waits();
  pass_on_leave_notices(false);
}

// Of the job's first communicator all ranks are members: one that dies while they gather ends that, and one that leaves
// has passed on all parts before.
bool ControlComm::says_parts_again() const {
  return id() != 0 && !is_over();
}

std::vector<std::string> ControlComm::farewell() const {
  std::vector<std::string> result;
  if (says_parts_again()) result = own_parts_;
  if (const auto own = refusals_.find(rank_); own != refusals_.end()) result.push_back(own->second.frame);
  if (!notice_.empty()) result.push_back(notice_);
  result.push_back(pack_leave_notices(name_, departed()));
  return result;
}

std::vector<std::string> ControlComm::told() const {
  std::vector<std::string> result;
  if (says_parts_again()) result = own_parts_;
  for (const auto& [rank, refusal] : refusals_) result.push_back(refusal.frame);
  if (!notice_.empty()) result.push_back(notice_);
  if (const std::vector<LeaveNotice> left = departed(); !left.empty()) {
    result.push_back(pack_leave_notices(name_, left));
  }
  return result;
}

bool ControlComm::may_have_left(int job_rank, std::int64_t recent_ns) const {
  const int rank = rank_of(job_rank);
  return rank < 0 || last_leave_ns_ > recent_ns || has_departed(rank);
}

bool ControlComm::is_over() const {
  const MutexLock lock(mutex_);
  return all_parted_;
}

void ControlComm::tell_who_waits() {
  const MutexLock lock(mutex_);
  compared_ = parted_;
  all_parted_ = departed_places_.size() == static_cast<int>(members_.size());
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
  const std::string frame = pack_refusal(name_, refusal);
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
  if (is_new && !calls.down) tree_->pass_on_calls(id(), std::move(calls), from);
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
  for (const LeaveNotice& left : departed()) {
    hear_calls({false, job_rank_of(ranks_at(left.places).front()), left.calls.calls}, nullptr);
  }
}

}  // namespace tutti::internal::control
