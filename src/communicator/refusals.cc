#include "communicator/refusals.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "base/rank_list.h"
#include "os/clock.h"

namespace tutti::internal {
namespace {

// Limits of the length of a reason and of the number of reasons in one text: messages of the control tree have a
// maximum length.
constexpr std::size_t kMostBytes = 1000;
constexpr std::size_t kMostTold = 3;

}  // namespace

void Refusals::refuse(std::string why) {
  why.resize(std::min(why.size(), kMostBytes));
  const MutexLock lock(mutex_);
  // At the end of a group, the error of one of its refused calls comes again.
  if (stands() && why.find(why_) != std::string::npos) return;
  why_ = std::move(why);
  told_ = false;
  stands_.store(true, std::memory_order_relaxed);
}

void Refusals::tell(std::int64_t wait_ms) {
  Refusal refusal;
  {
    const MutexLock lock(mutex_);
    if (!stands() || std::exchange(told_, true)) return;
    known_ = true;
    refusal = {membership_.rank, history_.sequence() + 1, ++serial_, why_};
  }
  heard(refusal);  // rank 0 logs its own refusal as well
  tree_.report_refusal(refusal, wait_ms);
}

void Refusals::withdraw() {
  Refusal refusal;
  {
    const MutexLock lock(mutex_);
    told_ = false;
    if (!stands_.exchange(false, std::memory_order_relaxed) || !std::exchange(known_, false)) return;
    refusal = {membership_.rank, history_.sequence() + 1, ++serial_, ""};
  }
  heard(refusal);
  tree_.report_refusal(refusal, 0);
}

void Refusals::heard(const Refusal& refusal) {
  const MutexLock lock(mutex_);
  Heard& known = heard_[refusal.rank];
  if (!is_before(known.serial, refusal.serial)) return;
  known.serial = refusal.serial;
  known.stands = !refusal.text.empty();
  if (!known.stands) return;
  known.refusal = refusal;
  known.since_ns = now_ns();
  known.number = ++numbers_;
  any_.store(true, std::memory_order_relaxed);
}

std::string Refusals::describe(const Refusal& refusal) const {
  const PeerInfo& peer = membership_.peers[static_cast<std::size_t>(refusal.rank)];
  return fmt::format("{} refused its operation {}: {}", describe_rank(refusal.rank, peer.hostname, peer.pid),
                     refusal.sequence, refusal.text);
}

Refusals::Standing Refusals::standing(std::uint32_t sequence, int peer) const {
  Standing result;
  std::size_t told = 0;
  const MutexLock lock(mutex_);
  const auto own = heard_.find(membership_.rank);
  for (const auto& [rank, known] : heard_) {
    const bool concerned = peer >= 0 ? rank == peer : !is_before(sequence, known.refusal.sequence);
    const bool alike =
        own != heard_.end() && rank != own->first && own->second.refusal.sequence == known.refusal.sequence;
    if (!known.stands || !concerned || alike) continue;
    if (++told <= kMostTold) result.text += (result.text.empty() ? "" : "; ") + describe(known.refusal);
    result.since_ns = result.last == 0 ? known.since_ns : std::min(result.since_ns, known.since_ns);
    result.last = std::max(result.last, known.number);
  }
  if (told > kMostTold) result.text += fmt::format("; and {} more ranks", told - kMostTold);
  return result;
}

Status Refusals::check_overdue(const Standing& refused, std::int64_t waited_ms, std::int64_t notice_ms) {
  const std::int64_t stands_ms = (now_ns() - refused.since_ns) / kNsPerMs;
  if (refused.last == 0 || notice_ms <= 0 || std::min(stands_ms, waited_ms) < notice_ms) return {};
  return Status::remote(
      fmt::format("{}. It has called nothing of this communicator for {} ms since", refused.text, stands_ms));
}

// Also lists a rank that refused the operation of this number and then called a different one. If another rank has
// already put the text into `failure`, it is not repeated.
Status Refusals::explain(Status failure) const {
  const bool explains =
      failure.code() == Code::kRemoteError || failure.code() == Code::kTimeout || failure.code() == Code::kMismatch;
  if (!explains || !any()) return failure;
  std::string text = failure.message();
  std::size_t told = 0;
  const MutexLock lock(mutex_);
  for (const auto& [rank, known] : heard_) {
    const bool same = failure.code() == Code::kMismatch && known.refusal.sequence == history_.sequence();
    if (!known.stands && !same) continue;
    if (++told > kMostTold) break;
    if (text.find(known.refusal.text) == std::string::npos) text += "; " + describe(known.refusal);
  }
  return {failure.code(), std::move(text)};
}

}  // namespace tutti::internal
