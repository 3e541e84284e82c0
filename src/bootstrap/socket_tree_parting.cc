// Ranks that leave: what they say of their calls, and whether all have called the same.
#include <unistd.h>

#include <utility>

#include "base/clock.h"
#include "bootstrap/call_comparison.h"
#include "bootstrap/socket_tree.h"

namespace tutti::internal::control {
namespace {

// How often a rank that waits for the others' leave notices looks whether it still should.
constexpr std::int64_t kLookMs = 20;
// The watching thread answers in microseconds, unless the machine is very busy.
constexpr std::int64_t kCompareMs = 1000;

}  // namespace

CallSummary SocketTree::own_calls() const {
  return witness_.calls ? witness_.calls() : CallSummary();
}

void SocketTree::on_leave_notice(const LeaveNotice& leave_notice, Neighbour* from) {
  const int rank = leave_notice.rank;
  {
    const MutexLock lock(mutex_);
    departed_[rank] = leave_notice.calls;
  }
  // Who sees that it has left may compare.
  if (failure_) {
    failure_->set_departed({rank, leave_notice.calls.operations});
  } else {
    early_departed_.push_back(rank);
  }
  // The connection stays until the rank closes it: until then it passes on what it hears.
  if (rank == from->rank) from->sent_leave_notice = true;
  leave_notices_.emplace_back(leave_notice, from);
  pass_on_kept();
  judge(rank, leave_notice.calls);
  tell_who_waits();
}

std::map<int, CallSummary> SocketTree::departed() const {
  const MutexLock lock(mutex_);
  return departed_;
}

// A rank that has not sent its own may still call what the other has called.
void SocketTree::judge(int rank, const CallSummary& calls) {
  if (!failure_ || failure_->failed()) return;
  const Status judged =
      parted_ ? difference(rank_, own_parting_, rank, calls) : contradiction(rank_, own_calls(), rank, calls);
  if (!judged.is_ok()) on_notice({judged.code(), rank_, -1, judged.message()}, nullptr);
}

void SocketTree::judge_departed() {
  for (const auto& [rank, calls] : departed()) judge(rank, calls);
}

Status SocketTree::compare_with_departed() {
  if (owner_ != ::getpid() || !watching_) return {};
  for (const auto& [rank, calls] : departed()) {
    if (Status s = contradiction(rank_, own_calls(), rank, calls); !s.is_ok()) return s;
  }
  return {};
}

// Once: this rank calls nothing more.
void SocketTree::send_leave_notice() {
  if (std::exchange(parted_, true)) return;
  own_parting_ = own_calls();
  flood(pack_leave_notice({rank_, own_parting_}), nullptr);
  judge_departed();
  tell_who_waits();
}

void SocketTree::tell_who_waits() {
  const MutexLock lock(mutex_);
  compared_ = parted_;
  all_parted_ = parted_ && departed_.size() + 1 == static_cast<std::size_t>(ranks_);
  parting_changed_.notify_all();
}

// Waits for something to change; false if nothing is waited for any longer.
bool SocketTree::look_again(Deadline deadline) {
  if (failure_->failed() || deadline.passed()) return false;
  parting_changed_.wait_until(mutex_, Deadline::after_ms(kLookMs));
  return true;
}

bool SocketTree::finish(std::int64_t wait_ms) {
  if (owner_ != ::getpid() || !watching_) return false;
  const MutexLock lock(mutex_);
  finishing_ = true;
  signal();
  const Deadline compared = Deadline::after_ms(kCompareMs);
  while (!compared_ && look_again(compared)) {
  }
  const Deadline all_parted = Deadline::after_ms(wait_ms);
  while (!all_parted_ && look_again(all_parted)) {
  }
  return all_parted_;
}

// ---- Comparing while nobody leaves --------------------------------------------------------------

void SocketTree::compare_calls() {
  if (owner_ != ::getpid() || !watching_) return;
  {
    const MutexLock lock(mutex_);
    comparing_ = true;
  }
  signal();
}

// Once in the life of a communicator: who asks knows that ranks differ, and no operation succeeds after that.
void SocketTree::ask_for_calls(const Neighbour* from) {
  if (std::exchange(asked_for_calls_, true)) return;
  flood(pack_compare(), from);
  on_calls({rank_, own_calls().calls});
  // A rank that has left cannot be asked, but has told.
  for (const auto& [rank, summary] : departed()) on_calls({rank, summary.calls});
}

}  // namespace tutti::internal::control
