#include "communicator/failures.h"

#include <fmt/core.h>

#include <utility>

#include "device/backend.h"
#include "monitor/live_communicators.h"
#include "monitor/rank_report.h"
#include "transport/end_watch.h"

namespace tutti::internal {
namespace {

// A peer's connection closes just before or after the control tree reports why. Waits this long for that report,
// because it names the rank at fault instead of the neighbour that closed the connection.
constexpr std::int64_t kRootCauseMs = 200;
// Time for the tree to find the difference; it takes microseconds per level. If it finds nothing (counts that ranks
// need not know alike), the peers must hear of the mismatch before they give up on this rank, whose links have ended:
// after the grace time, and their wait for the root cause.
constexpr std::int64_t kExplainMs = 400;
constexpr std::int64_t kToldMs = 100;  // time for the peers to hear of it
static_assert(kExplainMs + kToldMs < transport::kEndedGraceNs / 1'000'000 + kRootCauseMs);

}  // namespace

Failures::Failures(const Epoch& epoch, std::shared_ptr<CallHistory> history)
    : epoch_(epoch),
      history_(std::move(history)),
      state_(epoch.failure()),
      aborted_here_(Status::aborted(fmt::format("rank {} aborted the communicator", epoch.rank()))),
      aborted_there_(Status::aborted("aborted the communicator")),
      revoked_here_(Status::aborted(fmt::format("rank {} revoked the communicator", epoch.rank()))),
      revoked_there_(Status::aborted("revoked the communicator")) {
  if (epoch.tree() == nullptr) return;
  const Settings& settings = epoch.settings();
  refusals_ = std::make_unique<Refusals>(*epoch.tree(), epoch.membership(), *history_);
  stalls_ = std::make_unique<Stalls>(*epoch.tree(), epoch.membership(), *state_, *history_, *refusals_,
                                     settings.timeout_ms, settings.wait_notice_ms);
  epoch.waiter().watch_stalls(stalls_.get());
  if (epoch.link_maker() != nullptr) epoch.link_maker()->watch_stalls(stalls_.get());
}

Failures::~Failures() {
  // It may have failed while no call was in flight.
  if (failed()) (void)guarded([this] { return ring().fail(state_->status().message()), Status(); });
  if (stalls_ == nullptr) return;
  epoch_.waiter().watch_stalls(nullptr);
  if (epoch_.link_maker() != nullptr) epoch_.link_maker()->watch_stalls(nullptr);
}

Status Failures::watch(std::function<void(const std::string&)> decided) {
  if (epoch_.tree() == nullptr) return {};
  Witness witness{[history = history_] { return history->whereabouts(); },
                  [this](const Answer& answer) { stalls_->answered(answer); },
                  [history = history_] { return history->summary(); },
                  [this](const Refusal& refusal) { refusals_->heard(refusal); },
                  std::move(decided),
                  [this] { return epoch_.attend_listeners(); },
                  [this](net::PollSet* set) {
                    if (Reconnector* const reconnector = epoch_.reconnector()) reconnector->prepare(set);
                  },
                  [this](const net::PollSet& set) {
                    if (Reconnector* const reconnector = epoch_.reconnector()) reconnector->process(set);
                  },
                  epoch_.settings().reconnect_ms > 0,
                  [id = epoch_.public_id(), rank = epoch_.rank()] { return monitor::report_of_rank(id, rank); },
                  [id = epoch_.public_id()](const Answer& answer) { monitor::deliver_survey(id, answer); },
                  [history = history_, rank = epoch_.rank()] { return reason_of(history->ring(), rank); }};
  return epoch_.tree()->watch(state_, std::move(witness));
}

// A failed operation leaves half-finished streams, which cannot be used again. Peers must not wait for this rank.
Status Failures::fail(std::string_view what, Status status) {
  if (status.code() == Code::kInvalidUsage || status.code() == Code::kInvalidArgument) {
    set_last_error(status);
    return status;
  }
  const auto named = [&](const Status& cause) {
    return cause.code() == Code::kMismatch ? cause : cause.with_context(what);  // a mismatch already names the calls
  };
  Status result = with_refusals(named(status));
  if (!end_all(result, result)) result = with_refusals(named(state_->status()));
  note_failure(result);
  return result;
}

void Failures::abort() {
  aborted_.store(true, std::memory_order_release);
  (void)end_all(aborted_here_, aborted_there_);
}

bool Failures::end_all(const Status& here, const Status& there) {
  const MutexLock lock(telling_mutex_);
  const bool first = state_->fail(here);
  if (first && device_ != nullptr) device_->stop();
  if (first) epoch_.tell_peers(there);
  return first;
}

Status Failures::refuse() {
  if (is_finalized()) return Status::invalid_usage("the communicator is finalized");
  Status status = with_refusals(state_->status());
  note_failure(status);
  return status;
}

void Failures::set_last_error(const Status& status) {
  const MutexLock lock(mutex_);
  last_error_ = status;
}

void Failures::note_failure(const Status& status) {
  const MutexLock lock(mutex_);
  failure_text_ = status;
  ring().fail(status.message());
}

Status Failures::last_refusal() const {
  const MutexLock lock(mutex_);
  return last_error_;
}

// A later refusal does not hide a failure. If the communicator failed while no call was in flight, no call has noted a
// text.
Status Failures::last_error() const {
  const MutexLock lock(mutex_);
  if (!failed()) return last_error_;
  return failure_text_.is_ok() ? state_->status() : failure_text_;
}

Status Failures::check_refusals(std::int64_t waited_ms) const {
  if (refusals_ == nullptr || !refusals_->any()) return {};
  return Refusals::check_overdue(refusals_->standing(history_->sequence()), waited_ms,
                                 epoch_.settings().wait_notice_ms);
}

void Failures::withdraw() {
  goes_slowly_.store(false, std::memory_order_relaxed);
  const Status told = guarded([&] { return refusals_->withdraw(), Status(); });
  (void)told;
}

Status Failures::await_root_cause(const std::string& what, std::uint32_t sequence, Status status,
                                  bool unexplained) const {
  if (status.code() == Code::kMismatch) return unexplained ? explain(std::move(status)) : status;
  const bool waited = status.code() == Code::kTimeout;
  if (!waited && status.code() != Code::kRemoteError && status.code() != Code::kSystemError) return status;
  ControlTree* const tree = epoch_.tree();
  // When the leave notice came, this call had not begun, so the notice could not show the difference.
  if (tree != nullptr && state_->any_departed() && !failed()) {
    if (Status differs = tree->compare_with_departed(); !differs.is_ok()) return differs;
  }
  if (waited) return status;
  if (tree != nullptr) (void)state_->await(Deadline::after_ms(kRootCauseMs));
  if (status.code() != Code::kRemoteError || stalls_ == nullptr || failed()) return status;
  // No rank has died: the connection ended, or no data comes, because a rank has left.
  if (const auto left = state_->departed_before(sequence); left.rank >= 0) {
    return Status::mismatch(fmt::format("rank {} has left after {}{}, rank {} runs {}", left.rank, left.operations,
                                        left.operations == 1 ? " operation" : " operations", epoch_.rank(), what));
  }
  // A silent rank does not forward notices: the peer whose connection is lost may have given up on that rank.
  const std::string silent = stalls_->silent();
  return silent.empty() ? status : Status::timeout(silent + "; " + status.message());
}

Status Failures::explain(Status mismatch) const {
  if (epoch_.tree() == nullptr) return mismatch;
  epoch_.tree()->compare_calls();
  (void)state_->await(Deadline::after_ms(kExplainMs));
  return mismatch;
}

}  // namespace tutti::internal
