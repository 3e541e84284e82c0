#include "control/control_comm.h"

#include <fmt/core.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/rank_list.h"
#include "control/socket_tree.h"
#include "control/tree_shape.h"

namespace tutti::internal::control {
namespace {

// No rank gives its part to a round before all have given theirs to the last one.
constexpr std::size_t kPartsInUse = 2;

}  // namespace

ControlComm::ControlComm(std::shared_ptr<SocketTree> tree, CommId id, std::vector<int> members)
    : ControlComm(std::move(tree), id, std::move(members), 0, {}) {}

ControlComm::ControlComm(std::shared_ptr<SocketTree> tree, CommId id, std::vector<int> members, CommId parent,
                         GivesUp gives_up)
    : tree_(std::move(tree)),
      members_(std::move(members)),
      name_(id, members_.size() == static_cast<std::size_t>(tree_->ranks()) ? std::string() : member_bits(members_)),
      parent_(parent),
      gives_up_(std::move(gives_up)) {
  by_job_rank_.resize(members_.size());
  std::iota(by_job_rank_.begin(), by_job_rank_.end(), 0);
  std::sort(by_job_rank_.begin(), by_job_rank_.end(), [this](int a, int b) { return job_rank_of(a) < job_rank_of(b); });
  rank_ = rank_of(tree_->rank());
}

ControlComm::~ControlComm() {
  if (!enlisted_ || tree_->is_forked() || tree_->has_ended()) return;
  {
    const MutexLock lock(mutex_);
    commands_.ending = true;
  }
  tree_->signal();
  tree_->await_dismissal(id());
}

Status ControlComm::enlist() {
  Status s = tree_->enlist(this);
  enlisted_ = s.is_ok();
  return s;
}

int ControlComm::rank_of(int job_rank) const {
  const auto found = std::lower_bound(by_job_rank_.begin(), by_job_rank_.end(), job_rank,
                                      [this](int rank, int wanted) { return job_rank_of(rank) < wanted; });
  return found == by_job_rank_.end() || job_rank_of(*found) != job_rank ? -1 : *found;
}

// ---- From other threads -------------------------------------------------------------------------

// Nobody listens any more.
bool ControlComm::mute() const {
  return commands_.leaving || commands_.ending;
}

Result<std::unique_ptr<ControlTree>> ControlComm::split(std::uint64_t id, std::vector<int> members, GivesUp gives_up) {
  if (tree_->is_forked()) return Status::invalid_usage("a communicator of the parent process cannot be split");
  std::vector<int> job_ranks;
  for (const int rank : members) {
    if (rank < 0 || rank >= static_cast<int>(members_.size())) return Status::internal("split: no such rank");
    job_ranks.push_back(members_[static_cast<std::size_t>(rank)]);
  }
  std::vector<int> sorted = job_ranks;
  std::sort(sorted.begin(), sorted.end());
  const bool twice = std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end();
  if (twice || !std::binary_search(sorted.begin(), sorted.end(), tree_->rank())) {
    return Status::internal("split: the members are not different ranks with this one among them");
  }
  if (members.size() == 1) return std::unique_ptr<ControlTree>();
  {
    const MutexLock lock(mutex_);
    if (mute()) return Status::invalid_usage("a communicator that has ended cannot be split");
  }
  auto child = std::make_unique<ControlComm>(tree_, id, std::move(job_ranks), this->id(), std::move(gives_up));
  if (Status s = child->enlist(); !s.is_ok()) return s;
  tree_->signal();
  return std::unique_ptr<ControlTree>(std::move(child));
}

Status ControlComm::watch(std::shared_ptr<FailureState> failure, Witness witness) {
  auto watching = std::make_shared<const Watching>(Watching{std::move(failure), std::move(witness)});
  const MutexLock lock(mutex_);
  watching_ = watching;
  for (const auto& [rank, refusal] : std::exchange(early_refusals_, {})) {
    if (watching->witness.refused) watching->witness.refused(refusal);
  }
  for (const std::string& decision : std::exchange(early_decisions_, {})) {
    if (watching->witness.decided) watching->witness.decided(decision);
  }
  if (!failure_.is_ok()) watching->failure->fail(failure_);
  for (const LeaveNotice& left : departed_) {
    for (const int rank : ranks_at(left.places)) watching->failure->set_departed({rank, left.calls.operations});
  }
  return {};
}

void ControlComm::announce_failure(const Status& status) {
  if (tree_->is_forked() || status.is_ok()) return;
  const MutexLock lock(mutex_);
  if (mute()) return;
  if (commands_.announcement.is_ok()) commands_.announcement = status;
  tree_->signal();
}

void ControlComm::report_calls(std::vector<CallRecord> calls) {
  if (tree_->is_forked()) return;
  const MutexLock lock(mutex_);
  if (mute() || watching_ == nullptr) return;
  commands_.reports.push_back(std::move(calls));
  tree_->signal();
}

void ControlComm::ask(Question question) {
  if (tree_->is_forked()) return;
  const MutexLock lock(mutex_);
  if (mute() || watching_ == nullptr) return;
  commands_.questions.push_back(std::move(question));
  tree_->signal();
}

void ControlComm::tell_decision(const std::string& decision) {
  if (tree_->is_forked()) return;
  const MutexLock lock(mutex_);
  if (mute() || watching_ == nullptr) return;
  commands_.decisions.push_back(decision);
  tree_->signal();
}

void ControlComm::compare_calls() {
  if (tree_->is_forked()) return;
  const MutexLock lock(mutex_);
  if (mute() || watching_ == nullptr) return;
  commands_.comparing = true;
  tree_->signal();
}

void ControlComm::leave() {
  if (tree_->is_forked()) return;
  {
    const MutexLock lock(mutex_);
    if (std::exchange(commands_.leaving, true)) return;
  }
  tree_->signal();
  tree_->await_dismissal(id());
}

// ---- The all-gather -----------------------------------------------------------------------------

Result<std::vector<std::string>> ControlComm::all_gather(const std::string& mine, Deadline deadline) {
  if (tree_->is_forked()) return Status::invalid_usage("a communicator of the parent process cannot be used");
  std::uint32_t round = 0;
  {
    const MutexLock lock(mutex_);
    round = next_round_++;
    static_cast<void>(gathering(round));  // from now on others' parts are kept
    commands_.parts.emplace_back(round, mine);
  }
  tree_->signal();
  auto gathered = gather(round, deadline);
  if (!gathered.is_ok()) announce_failure(gathered.status());
  return gathered;
}

// A failure that comes behind the last part does not end it: watch() tells of it. A rank that comes last has all parts
// at once, and may stand still after that: the others have its part first.
Result<std::vector<std::string>> ControlComm::gather(std::uint32_t round, Deadline deadline) {
  const MutexLock lock(mutex_);
  for (;;) {
    const Gathering& at = gathering(round);
    const bool complete = at.places.size() == static_cast<int>(members_.size());
    if (complete && (at.passed_on || !failure_.is_ok())) break;
    if (!complete) {
      if (Status s = hopeless(round); !s.is_ok()) return s;
    }
    if (deadline.passed()) {
      return Status::timeout("timed out during the initialisation, waiting for " + list_ranks(to_blame(round)));
    }
    if (gives_up_) {
      if (Status s = gives_up_(); !s.is_ok()) return s;
    }
    changed_.wait_until(mutex_, gives_up_ ? Deadline::after_ms(deadline.left_ms(kFailureCheckMs)) : deadline);
  }
  std::vector<std::string> result(members_.size());
  std::vector<std::string>& parts = gathering(round).parts;
  for (std::size_t place = 0; place < parts.size(); ++place) {
    result[static_cast<std::size_t>(by_job_rank_[place])] = std::move(parts[place]);
  }
  gatherings_.erase(round);
  return result;
}

ControlComm::Gathering& ControlComm::gathering(std::uint32_t round) {
  Gathering& at = gatherings_[round];
  at.parts.resize(members_.size());
  return at;
}

Status ControlComm::hopeless(std::uint32_t round) {
  if (!failure_.is_ok()) return failure_;
  const RankSet missed = departed_places_.without(gathering(round).places);
  if (missed.empty()) return {};
  return Status::remote(list_ranks({ranks_at(missed).front()}) + " left during the initialisation");
}

// Of the ranks whose parts are missing those next to one whose part is there, or to this one: a rank that passes
// nothing on may hide those behind it.
std::vector<int> ControlComm::to_blame(std::uint32_t round) {
  const RankSet& places = gathering(round).places;
  const auto here = [&](int rank) { return rank == rank_ || places.contains(place_of(rank)); };
  const int self = tree_->rank();
  const auto towards_self = [&](int job_rank) {
    int below = self;  // the ancestor of this rank that is a child of job_rank, if there is one
    while (below > job_rank && tree_parent(below) > job_rank) below = tree_parent(below);
    return below > job_rank && tree_parent(below) == job_rank ? below : tree_parent(job_rank);
  };
  std::vector<int> blamed;
  for (std::size_t rank = 0; rank < members_.size(); ++rank) {
    if (here(static_cast<int>(rank))) continue;
    int next = towards_self(members_[rank]);
    while (next != self && rank_of(next) < 0) next = towards_self(next);
    if (here(rank_of(next))) blamed.push_back(static_cast<int>(rank));
  }
  return blamed;
}

// ---- What the thread does of that ---------------------------------------------------------------

bool ControlComm::wants_to_go() const {
  const MutexLock lock(mutex_);
  return mute();
}

// Whether this rank goes, as far as it has told its peers: who leaves meanwhile has not done so yet.
bool ControlComm::handle_commands() {
  Commands commands;
  {
    const MutexLock lock(mutex_);
    std::swap(commands, commands_);
    commands_.leaving = commands.leaving;
    commands_.ending = commands.ending;
  }
  for (auto& [round, part] : commands.parts) {
    const int place = place_of(rank_);
    {
      // Not before: a failure that the tree's thread tells meanwhile comes first.
      const MutexLock lock(mutex_);
      Gathering& own = gathering(round);
      own.parts[static_cast<std::size_t>(place)] = part;
      own.places.add(RankSet(place, place + 1));
    }
    own_parts_.push_back(pack_parts(name_, {round, tree_->rank(), RankSet(place, place + 1), {std::move(part)}}));
    if (own_parts_.size() > kPartsInUse) own_parts_.erase(own_parts_.begin());
    pass_on_parts(round, false);
  }
  for (const std::string& decision : commands.decisions) {
    tree_->flood_to(name_.members, pack_decision(name_, decision), nullptr);
  }
  if (!commands.announcement.is_ok()) {
    const Status& cause = commands.announcement;
    tell_failure({cause.code(), fmt::format("rank {}: {}", rank_, cause.message())});
  }
  if (!commands.reports.empty()) judge_departed();
  for (std::vector<CallRecord>& calls : commands.reports) report_own(std::move(calls));
  if (commands.refusal) send_refusal(std::move(*commands.refusal));
  for (const Question& question : commands.questions) {
    if (!any_notice_) tree_->inquire(id(), question);
  }
  if (commands.comparing) on_compare(pack_compare(name_), nullptr);
  if (commands.finishing || commands.leaving) send_leave_notice();
  if (commands.leaving) pass_on_at_once();
  if (commands.ending && !parted_)
    tell_failure({Code::kRemoteError, fmt::format("rank {} ended without leaving", rank_)});
  return commands.leaving || commands.ending;
}

}  // namespace tutti::internal::control
