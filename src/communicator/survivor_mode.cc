#include "communicator/survivor_mode.h"

#include <fmt/core.h>

#include <algorithm>
#include <climits>
#include <utility>

#include "base/collectives.h"
#include "base/log.h"
#include "base/rank_list.h"
#include "communicator/communicator.h"

namespace tutti::internal {
namespace {

// The flags of the agreement after a collective.
constexpr std::uint64_t kDone = 1;        // this rank has completed it
constexpr std::uint64_t kDoneOrLost = 2;  // or it has not, and the reason may be that another one has died, or is late

// If a rank comes at the last moment, an attempt fails although no rank is missing afterwards. After this number of
// such attempts in a row, the cause is another one. With a limit for late ranks, a busy machine may need more: each
// attempt connects the ranks anew within the limit.
constexpr int kMostUnchanged = 3;
constexpr int kMostUnchangedIfLate = 12;
// Time in which contributions to an agreement reach the rank that decides: on the way a rank may hold them for 400 ms.
constexpr std::int64_t kHeldMs = 800;
constexpr std::int64_t kMostLimitMs = INT_MAX / 8;
// With a limit for late ranks: time in which the ranks on time connect with each other. One that stops meanwhile delays
// the others for so long.
constexpr std::int64_t kConnectMs = 2'000;
// Time for a rank to hear from the others why they have failed.
constexpr std::int64_t kCauseMs = 200;

bool is_refusal(const Status& status) {
  return status.code() == Code::kInvalidArgument || status.code() == Code::kInvalidUsage;
}

Status was_late() {
  return Status::timeout("this rank was late: the others have gone on without it");
}

bool contains(const std::vector<int>& ranks, int rank) {
  return std::binary_search(ranks.begin(), ranks.end(), rank);
}

// The same on all ranks: what they compare of their calls.
std::string describe(const Call& call, std::uint64_t number, int ranks) {
  const int root = has_root(call.collective) ? call.root : 0;
  const std::uint64_t count = call.varying == nullptr ? call.count : hash_of_counts(call, ranks);
  return executor::describe(executor::make_fingerprint(static_cast<std::uint32_t>(number), call.collective, call.type,
                                                       call.op, root,
                                                       executor::count_with_element_bytes(call.opaque, count)));
}

}  // namespace

SurvivorMode::SurvivorMode(Failures& whole, std::unique_ptr<Communicator> council, const Settings& settings)
    : whole_(whole), council_(std::move(council)), timeout_ms_(settings.timeout_ms), settings_(settings) {
  if (!takes_late()) return;
  settings_.timeout_ms = std::min(settings_.timeout_ms, settings_.straggler_ms);
  settings_.init_timeout_ms = std::min(settings_.init_timeout_ms, kConnectMs + limit_ms());
}

SurvivorMode::~SurvivorMode() = default;

Result<std::unique_ptr<SurvivorMode>> SurvivorMode::create(Communicator& of) {
  Settings settings = of.settings();
  settings.survivors = false;
  auto council = of.shrink({{}, &settings, {}, "survivor mode"});
  if (!council.is_ok()) return council.status().with_context("survivor mode");
  if ((*council)->ranks() != of.ranks()) return Status::remote("survivor mode: a rank has died before all had joined");
  auto mode = std::unique_ptr<SurvivorMode>(new SurvivorMode(of.failures(), std::move(*council), settings));
  auto made = mode->replace({}, false);
  if (!made.is_ok()) return made.status().with_context("survivor mode");
  if (!*made) return Status::timeout("survivor mode: a rank is late");
  const MutexLock lock(mode->mutex_);
  mode->contributors_ = mode->members_;
  return mode;
}

int SurvivorMode::rank() const {
  return council_->rank();
}

int SurvivorMode::ranks() const {
  return council_->ranks();
}

Status SurvivorMode::check_split() const {
  if (takes_late())
    return Status::invalid_usage("TUTTI_STRAGGLER_MS is set: late ranks could not take part in a split");
  if (is_complete()) return {};
  return Status::invalid_usage("ranks have died. Call tuttiCommShrink, and split its result");
}

Status SurvivorMode::noted(Status result) const {
  if (!result.is_ok()) whole_.set_last_error(result);
  return result;
}

Status SurvivorMode::run(const Call& call) {
  return noted(run_unnoted(call));
}

Status SurvivorMode::run_unnoted(const Call& call) {
  if (Status s = status(); !s.is_ok()) return s;
  ++calls_;
  if (is_empty(call)) return {};  // on all ranks
  const Status result = guarded([&] {
    if (is_out_) {
      if (Status s = come_back(); !s.is_ok()) return end_with(s.with_context("a late rank that calls again"));
    }
    if (calls_ <= over_) return was_late();
    over_ = 0;
    return attempt_until_agreed(call);
  });
  return result.code() == Code::kSystemError ? fail(name_of(call.collective), result) : result;
}

Status SurvivorMode::run_on_all(const Call& call) {
  if (Status s = run(call); !s.is_ok()) return s;
  return is_complete() ? Status() : Status::remote(describe_absent(absent_.front()));
}

// How long this rank waits for the others' results. If its own operation has ended with an error, the operations of the
// others have, too. Otherwise they may wait as long as this one has, for a rank that is late.
std::int64_t SurvivorMode::wait_ms(const Status& own) const {
  if (own.code() == Code::kTimeout) return kHeldMs + std::min(settings_.timeout_ms, kHeldMs);
  if (takes_late()) return limit_ms();
  return 2 * std::min(timeout_ms_, kMostLimitMs);
}

std::int64_t SurvivorMode::limit_ms() const {
  return kHeldMs + 4 * std::min(settings_.straggler_ms, kMostLimitMs);
}

Status SurvivorMode::attempt_until_agreed(const Call& call) {
  Proposal proposal{.call = describe(call, calls_, ranks()), .excluded = {}, .takes_late = takes_late()};
  Status why;
  struct {
    std::int64_t since_ns = now_ns();
    Status refused;
  } waiting;
  const auto ends = [this, &waiting] {
    waiting.refused = living_->failures().check_refusals((now_ns() - waiting.since_ns) / kNsPerMs);
    return waiting.refused;
  };
  const int most = takes_late() ? kMostUnchangedIfLate : kMostUnchanged;
  for (int unchanged = 0; unchanged < most;) {
    // Without a late root the ranks only agree, because it may be back.
    const bool lacks_root = has_root(call.collective) && index_of(call.root) < 0;
    if (lacks_root && !contains(late_, call.root)) {
      return Status::remote(fmt::format("rank {}, the root, has died", call.root));
    }
    const Status own = lacks_root ? Status() : guarded([&] { return attempt(call); });
    proposal.excluded = absent_;
    proposal.flags = own.is_ok() ? kDone | kDoneOrLost : may_be_lost(own) ? kDoneOrLost : 0;
    if (own.code() == Code::kAborted) return end_with(own);  // on all ranks
    proposal.offer = council_->survivors().offer_phase(phase_, late_, settings_.straggler_ms);
    proposal.series = phase_;
    waiting.refused = {};
    auto agreed = council_->survivors().agree(proposal, Deadline::after_ms(wait_ms(own)), ends);
    if (!agreed.is_ok()) {
      const Code code = agreed.status().code();
      if (!waiting.refused.is_ok()) return end_refused(call, waiting.refused);
      if (takes_late() && code == Code::kTimeout) return note_late();
      if (own.is_ok() || code == Code::kAborted) return end_with(agreed.status());
      if (!may_be_lost(own)) return end_with(own);
      if (code == Code::kMismatch) return end_with(agreed.status());
      return end_with(agreed.status().with_context(own.message()));
    }
    if ((agreed->flags & kDone) != 0) {
      if (!lacks_root) deliver(call);
      if (!agreed->offer.empty()) {
        const Status back = guarded([&] { return take_back(agreed->offer); });
        if (!back.is_ok()) (void)end_with(back);  // of the next call
      }
      return lacks_root ? Status::remote(fmt::format("rank {}, the root, is late", call.root)) : Status();
    }
    const std::size_t before = members_->size();
    why = living_->failures().state().status();
    auto prepared = prepare_retry(*agreed, own);
    if (is_refusal(own)) return own;
    if (!prepared.is_ok()) return end_with(prepared.status().with_context(name_of(call.collective)));
    if (!*prepared) return note_late();
    unchanged = members_->size() == before ? unchanged + 1 : 0;
  }
  if (why.is_ok()) why = Status::remote("another rank could not complete the operation");
  return end_with(why.with_context(
      fmt::format("{}: no rank has died, but the operation has failed {} times", name_of(call.collective), most)));
}

// The others have gone on, or this rank could not reach them in time.
Status SurvivorMode::note_late() {
  is_out_ = true;
  return was_late();
}

// Other ranks may still be in the operation.
Status SurvivorMode::end_refused(const Call& call, const Status& refusal) {
  const Status named = refusal.with_context(name_of(call.collective));
  council_->survivors().tell_end(Status::remote(named.message()));
  (void)living_->fail(name_of(call.collective), refusal);
  return end_with(named);
}

std::string SurvivorMode::describe_absent(int rank) const {
  if (council_->failures().state().departed(rank)) return fmt::format("rank {} has left", rank);
  return fmt::format("rank {} {}", rank, contains(late_, rank) ? "is late" : "has died");
}

void SurvivorMode::deliver(const Call& call) {
  if (output_.exists) unpack(output_, call.recv);
  const MutexLock lock(mutex_);
  contributors_ = members_;
}

Result<bool> SurvivorMode::prepare_retry(const Agreement& agreed, const Status& own) {
  if (!agreed.late.empty()) {
    if (agreed.why.code() != Code::kTimeout) return agreed.why;  // they have left instead
    warn_of_late(agreed.late);
    late_ = joined(late_, agreed.late);
    return replace(joined(absent_, agreed.late));
  }
  if ((agreed.flags & kDoneOrLost) == 0) return own.is_ok() || may_be_lost(own) ? cause() : own;
  return replace(absent_);
}

void SurvivorMode::warn_of_late(const Members& late) const {
  const auto is_on_time = [&](int rank) { return !contains(late, rank); };
  const auto first = std::find_if(members_->begin(), members_->end(), is_on_time);
  if (first == members_->end() || rank() != *first) return;
  log::warn(fmt::format("{} late by {} ms: collectives go on without", list_ranks(late), settings_.straggler_ms));
}

// ---- Late ranks ---------------------------------------------------------------------------------

Status SurvivorMode::take_back(const std::string& offer) {
  auto next = council_->survivors().phase_of(offer);
  if (!next.is_ok()) return next.status();
  Invitation invitation{next->phase, calls_, next->invited, {}};
  for (const int rank : *members_) invitation.members.add(RankSet(rank, rank + 1));
  for (const int rank : late_) {
    if (!next->invited.contains(rank)) invitation.late.append(rank, rank + 1);
  }
  council_->survivors().invite(invitation, rank() == members_->front());
  Members members;
  invitation.members.each([&](int rank) { members.push_back(rank); });
  auto begun = begin_phase(invitation);
  if (!begun.is_ok()) return begun.status();
  is_out_ = !*begun;
  // The rank that was to tell them may have stopped or died before.
  const bool all_came =
      !is_out_ && std::all_of(members.begin(), members.end(), [this](int rank) { return index_of(rank) >= 0; });
  if (!all_came) council_->survivors().invite(invitation, true);
  return {};
}

Status SurvivorMode::come_back() {
  const auto deadline = Deadline::after_ms(std::min<std::int64_t>(timeout_ms_, INT_MAX));
  for (;;) {
    auto invitation = council_->survivors().await_invitation({rank(), phase_, std::max(calls_ - 1, over_)}, deadline);
    if (!invitation.is_ok()) return invitation.status();
    auto begun = begin_phase(*invitation);
    if (!begun.is_ok()) return begun.status();
    if (!*begun) continue;
    is_out_ = false;
    return {};
  }
}

Result<bool> SurvivorMode::begin_phase(const Invitation& invitation) {
  phase_ = invitation.phase;
  over_ = std::max(over_, invitation.calls);
  late_.clear();
  invitation.late.each([&](int rank) { late_.push_back(rank); });
  Members others;
  for (int rank = 0; rank < ranks(); ++rank) {
    if (!invitation.members.contains(rank)) others.push_back(rank);
  }
  return replace(others, !invitation.all_were_late);
}

int SurvivorMode::index_of(int rank) const {
  const auto found = std::lower_bound(members_->begin(), members_->end(), rank);
  return found != members_->end() && *found == rank ? static_cast<int>(found - members_->begin()) : -1;
}

Result<bool> SurvivorMode::replace(const Members& excluded, bool leaves_out_late) {
  Members late;
  ShrinkWish wish{excluded, &settings_, {}, "a collective that leaves out ranks", phase_};
  if (takes_late() && leaves_out_late) wish.limit_ms = limit_ms();
  wish.late = &late;
  auto made = council_->shrink(wish);
  if (takes_late() && made.status().code() == Code::kTimeout) return false;
  if (!made.is_ok()) return made.status();
  if (!late.empty()) warn_of_late(late);
  late_ = joined(late_, late);
  std::shared_ptr<Communicator> living = std::move(*made);
  // Its ranks are in the order of the ranks here.
  const auto& of_all = council_->epoch().membership().job_ranks;
  const auto& of_members = living->epoch().membership().job_ranks;
  auto members = std::make_shared<Members>();
  Members absent;
  for (int rank = 0; rank < ranks(); ++rank) {
    const std::size_t next = members->size();
    const bool lives = next < of_members.size() && of_members[next] == of_all[static_cast<std::size_t>(rank)];
    (lives ? *members : absent).push_back(rank);
  }
  {
    const MutexLock lock(mutex_);
    std::swap(living_, living);
    members_ = std::move(members);
    absent_ = std::move(absent);
    if (ended_ != nullptr) (living_.get()->*ended_)();
  }
  return true;  // the former one ends here, without the mutex
}

Status SurvivorMode::cause() const {
  const FailureState& state = living_->failures().state();
  (void)state.await(Deadline::after_ms(kCauseMs));
  return state.failed() ? state.status() : Status::remote("another rank could not complete the operation");
}

Status SurvivorMode::run(std::span<const Transfer> transfers) {
  const Status result = guarded([&] { return run_unnoted(transfers); });
  return noted(result.code() == Code::kSystemError ? fail("send or receive", result) : result);
}

Status SurvivorMode::run_unnoted(std::span<const Transfer> transfers) {
  if (Status s = status(); !s.is_ok()) return s;
  // The others have made the transfers that belong to a collective which this rank has missed.
  if (is_out_ || calls_ < over_) return was_late();
  std::vector<Transfer> inner(transfers.begin(), transfers.end());
  for (Transfer& transfer : inner) {
    const int peer = index_of(transfer.peer);
    if (peer < 0) return Status::remote(describe_absent(transfer.peer));
    transfer.peer = peer;
  }
  return living_->run(inner);
}

Status SurvivorMode::run(std::span<const Call> calls, std::span<const Transfer> transfers) {
  Status first;
  const auto note = [&first](const Status& status) {
    if (first.is_ok()) first = status;
  };
  for (const Call& call : calls) note(run(call));
  if (!transfers.empty()) note(run(transfers));
  return first;
}

std::vector<int> SurvivorMode::contributors() const {
  const MutexLock lock(mutex_);
  return *contributors_;
}

Status SurvivorMode::status() const {
  const MutexLock lock(mutex_);
  return status_.is_ok() ? council_->survivors().ended() : status_;
}

Status SurvivorMode::end_with(const Status& status) {
  const Status ended = council_->survivors().ended();
  // Late ranks, and those that find out now that they are late, take part in no agreement on the error.
  if (ended.is_ok() && takes_late() && !is_out_ && status.code() != Code::kAborted) {
    (void)guarded([&] { return council_->survivors().tell_end(status), Status(); });
  }
  const MutexLock lock(mutex_);
  if (status_.is_ok()) status_ = ended.code() == Code::kAborted ? ended : status;
  return status_;
}

void SurvivorMode::abort() {
  council_->failures().abort();
  end(&Communicator::abort, "aborted");
}

void SurvivorMode::revoke() {
  end(&Communicator::revoke, "revoked");
}

void SurvivorMode::end(void (Communicator::*how)(), const char* told) {
  // Without memory for the notice, others that wait in an agreement learn of the end when this rank leaves.
  (void)guarded([&] {
    council_->survivors().tell_end(Status::aborted(fmt::format("rank {} {} the communicator", rank(), told)));
    return Status();
  });
  std::shared_ptr<Communicator> living;
  {
    const MutexLock lock(mutex_);
    ended_ = how;
    living = living_;
  }
  (living.get()->*how)();
}

// The others wait for this rank in an agreement.
Status SurvivorMode::fail(std::string_view what, const Status& status) {
  const Status failed = living()->fail(what, status);
  if (is_refusal(status)) return failed;
  {
    const MutexLock lock(mutex_);
    if (status_.is_ok()) status_ = failed;
  }
  // Without memory for the notice, the others learn of it when this rank leaves.
  (void)guarded([&] {
    council_->survivors().tell_end(failed.with_context(fmt::format("rank {}", rank())));
    return Status();
  });
  return failed;
}

void SurvivorMode::note_refusal(const Status& status) {
  living()->note_refusal(status);
}

Status SurvivorMode::finalize() {
  const Status result = living_->finalize();
  (void)council_->finalize();
  const Status failed = status();
  return failed.is_ok() && result.code() == Code::kMismatch ? result : failed;
}

}  // namespace tutti::internal
