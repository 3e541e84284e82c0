// How a communicator finds out that its ranks have called different things where no data tells them; and how the other
// ranks hear of a call that was refused here (refusals.h).
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <span>
#include <string>

#include "communicator/communicator.h"
#include "transport/end_watch.h"

namespace tutti::internal {
namespace {

// For the tree to find out what differs; it takes microseconds per level. Where it finds nothing, as of counts that
// ranks need not know alike, the peers must hear of the mismatch before they give up on this rank, whose links have
// ended: after the grace, and what they then wait for the root cause.
constexpr std::int64_t kExplainMs = 400;
constexpr std::int64_t kToldMs = 100;  // for them to hear it
// For the others to come to finalize as well.
constexpr std::int64_t kPartingMs = 1000;
// Communicators that are finalized in different orders on different ranks wait for each other in vain. After each wait
// in vain the next one of this process waits half as long, after each other wait twice as long.
constexpr int kMaxDisappointments = 9;
static_assert(kPartingMs >> kMaxDisappointments > 0);
std::atomic<int> disappointments{0};
// For the neighbours to hear of a refusal before the program ends the process because of it.
constexpr std::int64_t kTellRefusalMs = 100;

}  // namespace

// Part of a check, in place: the maxima of the words of all ranks (kAllReduce), or the words of `root` (kBroadcast).
Status Communicator::run_check(Collective collective, std::span<std::uint64_t> words, std::uint32_t sequence,
                               int root) {
  Call check;
  check.collective = collective;
  check.send = check.recv = words.data();
  check.count = words.size();
  check.type = DataType::kUint64;
  check.op = ReduceOp::kMax;
  check.root = root;
  return bind_and_run(check, executor::fingerprint_of_check(sequence));
}

// One word and its complement: their maxima belong together only if all ranks have the same word.
Status Communicator::check_beforehand(std::uint32_t sequence) {
  const std::array<std::uint64_t, 2> own{history_->hash(), ~history_->hash()};
  std::array<std::uint64_t, 2> most = own;
  if (Status s = run_check(Collective::kAllReduce, most, sequence); !s.is_ok()) return s;
  if (most == own) return {};
  return explain(Status::mismatch(
      fmt::format("ranks called different operations: {} of rank {} meets ranks that call something else, "
                  "or group their calls differently",
                  executor::describe(executor::fingerprint_of_check(sequence)), rank())));
}

// Counts that only two ranks share are in no history. If one of them is 0, nothing is sent that would tell.
Status Communicator::check_counts_beforehand(const Call& call, const transport::Fingerprint& fingerprint) {
  if (call.varying == nullptr || counts_are_common(call.collective)) return {};
  const PairBytes own = pair_bytes(call, ranks(), rank());
  std::vector<std::uint64_t> told(own.sends.size());
  Call check;
  check.collective = Collective::kAllToAll;
  check.send = own.sends.data();
  check.recv = told.data();
  check.count = 1;
  check.type = DataType::kUint64;
  if (Status s = bind_and_run(check, executor::fingerprint_of_check(fingerprint.sequence)); !s.is_ok()) return s;
  // All ranks name the same pair that differs: the last one, by receiver and sender. 0: there is none.
  const std::size_t n = told.size();
  std::array<std::uint64_t, 1> last{};
  for (std::size_t r = 0; r < n; ++r) {
    if (told[r] != own.receives[r]) last[0] = 1 + static_cast<std::size_t>(rank()) * n + r;
  }
  if (Status s = run_check(Collective::kAllReduce, last, fingerprint.sequence); !s.is_ok()) return s;
  if (last[0] == 0) return {};
  const std::size_t receiver = (last[0] - 1) / n;
  const std::size_t sender = (last[0] - 1) % n;
  std::array<std::uint64_t, 2> bytes{told[sender], own.receives[sender]};
  if (Status s = run_check(Collective::kBroadcast, bytes, fingerprint.sequence, static_cast<int>(receiver));
      !s.is_ok()) {
    return s;
  }
  return Status::mismatch(fmt::format(
      "ranks called different operations: in {} rank {} sends {} bytes to rank {}, which expects {}. Pass the same "
      "count on both",
      executor::describe(fingerprint), sender, bytes[0], receiver, bytes[1]));
}

// Gives the control tree time to tell what differs.
Status Communicator::explain(Status status) const {
  static_assert(kExplainMs + kToldMs < transport::kEndedGraceNs / 1'000'000 + kRootCauseMs);
  if (tree_ == nullptr) return status;
  tree_->compare_calls();
  (void)failure_->await(Deadline::after_ms(kExplainMs));
  return status;
}

bool Communicator::others_have_left() const {
  for (int r = 0; r < ranks(); ++r) {
    if (r != rank() && !failure_->departed(r)) return false;
  }
  return true;
}

void Communicator::part() {
  if (tree_ == nullptr) return;
  const bool waits = !failure_->failed() && process_rank_.others_may_come();
  const int shift = disappointments.load(std::memory_order_relaxed);
  // The last rank does not wait, so it learns nothing of how long waits should be.
  const bool is_last = shift > 0 && others_have_left();
  const bool all = tree_->finish(waits ? kPartingMs >> shift : 0);
  if (waits && !is_last && !failure_->failed()) {
    const int next = all ? std::max(shift - 1, 0) : std::min(shift + 1, kMaxDisappointments);
    disappointments.store(next, std::memory_order_relaxed);
  }
  process_rank_.leave();
}

void Communicator::note_refusal(const Status& status) {
  set_last_error(status);
  if (refusals_ == nullptr || finalized_ || failure_->failed()) return;
  const Status noted = guarded([&] {
    bool idle = false;
    {
      // The end of an operation takes the lock before it looks whether anything was refused meanwhile.
      const MutexLock lock(mutex_);
      refusals_->refuse(status.message());
      goes_slowly_.store(true, std::memory_order_relaxed);
      idle = !has_queued();
    }
    if (idle) refusals_->tell(kTellRefusalMs);
    return Status();
  });
  // Without memory the others find out by the timeout.
  (void)noted;
}

void Communicator::withdraw_refusal() {
  if (finalized_) return;
  goes_slowly_.store(false, std::memory_order_relaxed);
  const Status told = guarded([&] { return refusals_->withdraw(), Status(); });
  (void)told;
}

void Communicator::tell_refusal() {
  if (refusals_ == nullptr || !refusals_->stands() || has_queued()) return;
  const Status told = guarded([&] { return refusals_->tell(0), Status(); });
  (void)told;
}

}  // namespace tutti::internal
