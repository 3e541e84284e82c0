// The control tree of ranks that are threads of one process, in their shared memory.
#include "join/in_process.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/rank_list.h"
#include "control/call_comparison.h"
#include "control/call_ledger.h"
#include "control/comm_agent.h"
#include "control/tree_shape.h"
#include "join/thread_agreements.h"
#include "net/auth.h"
#include "os/mutex.h"

namespace tutti::internal {
namespace {

// Members of all abandoned communicators: those of which some members are missing and the others have ended. Their
// state needs less than 10 MB.
constexpr std::size_t kMaxAbandonedMembers = 16'384;

struct InProcessControl {
  explicit InProcessControl(int count) : ranks(static_cast<std::size_t>(count)) {
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      ranks[r].death = Status::remote(fmt::format("rank {} ended without leaving", r));
    }
    departed.reserve(ranks.size());
  }
  struct Rank {
    std::string bytes;
    bool written = false;
    std::shared_ptr<FailureState> failure;  // once it watches
    Witness witness;                        // likewise, until it leaves
    bool parted = false;                    // it calls nothing more,
    CallSummary calls;                      // and has called this
    bool left = false;
    bool dead = false;  // it has ended without leaving
    Refusal refusal;    // the last
    Status death;  // the error for the others if it ends without leaving; made in advance, because the rank may end
                   // for lack of memory
  };
  Mutex mutex;
  ConditionVariable changed;
  std::vector<Rank> ranks TUTTI_GUARDED_BY(mutex);
  std::size_t written TUTTI_GUARDED_BY(mutex) = 0;
  std::uint64_t round TUTTI_GUARDED_BY(mutex) = 0;  // all_gathers completed
  std::vector<std::string> result TUTTI_GUARDED_BY(mutex);
  Status failure TUTTI_GUARDED_BY(mutex);  // the first that was announced
  std::vector<int> departed TUTTI_GUARDED_BY(mutex);
  ThreadAgreements agreements TUTTI_GUARDED_BY(mutex);
  std::size_t parted TUTTI_GUARDED_BY(mutex) = 0;
  CallLedger ledger TUTTI_GUARDED_BY(mutex);
  std::vector<std::string> decisions TUTTI_GUARDED_BY(mutex);  // all decisions, for ranks that watch later
  struct ChildName {
    std::uint64_t id = 0;
    std::vector<int> members;  // in this numbering
    auto operator<=>(const ChildName&) const = default;
  };
  // A communicator of these ranks, until it has ended on all. A member that joins later than the others have failed
  // and ended learns the reason.
  struct Child {
    std::weak_ptr<InProcessControl> control;
    std::shared_ptr<InProcessControl> kept;  // the same, while any member is missing
    std::vector<int> missing;
    bool ends_with_leave = false;  // of one of them
    std::uint64_t serial = 0;      // in the order of creation
  };
  std::map<ChildName, Child> children TUTTI_GUARDED_BY(mutex);
  std::uint64_t children_made TUTTI_GUARDED_BY(mutex) = 0;
};

// Fails a communicator on all of its ranks, if it has not failed before.
void fail_all(InProcessControl& control, const Status& status) {
  const MutexLock lock(control.mutex);
  if (!control.failure.is_ok()) return;
  control.failure = status;
  for (InProcessControl::Rank& rank : control.ranks) {
    if (rank.failure) rank.failure->fail(status);
  }
  control.changed.notify_all();
}

bool contains(const std::vector<int>& ranks, int rank) {
  return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

// The number of a rank among `members`; -1: not a member.
int index_of(int rank, const std::vector<int>& members) {
  const auto at = std::find(members.begin(), members.end(), rank);
  return at == members.end() ? -1 : static_cast<int>(at - members.begin());
}

Status clash_caused_by(int rank, const std::vector<int>& members) {
  const control::Notice notice = control::clash_of_ids(index_of(rank, members));
  return {notice.code, notice.text};
}

class InProcessTree final : public ControlTree {
 public:
  InProcessTree(int rank, std::shared_ptr<InProcessControl> control, GivesUp gives_up = {})
      : rank_(rank),
        name_(fmt::format("rank {}", rank)),
        control_(std::move(control)),
        gives_up_(std::move(gives_up)) {}
  ~InProcessTree() override {
    const MutexLock lock(control_->mutex);
    tell_failure(me().death, me().left);
    me().dead = !std::exchange(me().left, true);
    control_->changed.notify_all();
    end_children();
    me().failure.reset();
    me().witness = {};
  }
  Result<std::vector<std::string>> all_gather(const std::string& mine, Deadline deadline) override;
  Status watch(std::shared_ptr<FailureState> failure, Witness witness) override;
  void announce_failure(const Status& status) override;
  void report_calls(std::vector<CallRecord> calls) override;
  void report_refusal(const Refusal& refusal, std::int64_t wait_ms) override;
  void ask(Question question) override;
  void tell_decision(const std::string& decision) override;
  void tell_lasting_decision(int /*kind*/, const std::string& decision) override { tell_decision(decision); }
  Status compare_with_departed() override;
  void compare_calls() override;
  Result<Agreement> agree(const Proposal& own, Deadline deadline, const GivesUp& gives_up) override;
  using ControlTree::split;
  Result<std::unique_ptr<ControlTree>> split(std::uint64_t id, std::vector<int> members, GivesUp gives_up) override;
  [[nodiscard]] Result<RankSet> dead() const override {
    const MutexLock lock(control_->mutex);
    return ranks_that_are(&InProcessControl::Rank::dead);
  }
  bool finish(std::int64_t wait_ms) override;
  void leave() override;

 private:
  InProcessControl::Rank& me() TUTTI_REQUIRES(control_->mutex) {
    return control_->ranks[static_cast<std::size_t>(rank_)];
  }
  void tell_failure(const Status& status, bool suppressed) TUTTI_REQUIRES(control_->mutex);
  void tell_mismatch(const Status& status) TUTTI_REQUIRES(control_->mutex);
  void part() TUTTI_REQUIRES(control_->mutex);
  [[nodiscard]] Status compared_with(int peer) TUTTI_REQUIRES(control_->mutex);
  [[nodiscard]] Status contradicted() TUTTI_REQUIRES(control_->mutex);
  [[nodiscard]] Status timed_out() const TUTTI_REQUIRES(control_->mutex);
  [[nodiscard]] RankSet ranks_that_are(bool InProcessControl::Rank::*state) const TUTTI_REQUIRES(control_->mutex);
  Status check_id(std::uint64_t id) TUTTI_REQUIRES(control_->mutex);
  Status fail_clashing(const InProcessControl::ChildName& name) TUTTI_REQUIRES(control_->mutex);
  void forget_children() TUTTI_REQUIRES(control_->mutex);
  void end_children() noexcept TUTTI_REQUIRES(control_->mutex);
  void end_hopeless(const InProcessControl::ChildName& name, InProcessControl::Child& child)
      TUTTI_REQUIRES(control_->mutex);

  const int rank_;
  const std::string name_;
  const std::shared_ptr<InProcessControl> control_;
  const GivesUp gives_up_;
};

Result<std::vector<std::string>> InProcessTree::all_gather(const std::string& mine, Deadline deadline) {
  const MutexLock lock(control_->mutex);
  if (!control_->failure.is_ok()) return control_->failure;
  const std::uint64_t round = control_->round;
  me().bytes = mine;
  me().written = true;
  if (++control_->written == control_->ranks.size()) {
    // The last rank completes the round. No rank can complete the next round before all have read this result, because
    // all take part in it.
    control_->result.clear();
    for (InProcessControl::Rank& rank : control_->ranks) {
      control_->result.push_back(std::move(rank.bytes));
      rank.written = false;
    }
    control_->written = 0;
    ++control_->round;
    control_->changed.notify_all();
    return control_->result;
  }
  Status given_up;
  while (control_->round == round && control_->failure.is_ok() && given_up.is_ok() && !deadline.passed()) {
    control_->changed.wait_until(control_->mutex,
                                 gives_up_ ? Deadline::after_ms(deadline.left_ms(kFailureCheckMs)) : deadline);
    if (gives_up_) given_up = gives_up_();
  }
  if (control_->round != round) return control_->result;
  if (!control_->failure.is_ok()) return control_->failure;
  const Status late = given_up.is_ok() ? timed_out() : given_up;
  tell_failure(late, false);
  return late;
}

Status InProcessTree::timed_out() const {
  std::vector<int> missing;
  for (std::size_t rank = 0; rank < control_->ranks.size(); ++rank) {
    if (!control_->ranks[rank].written) missing.push_back(static_cast<int>(rank));
  }
  return Status::timeout("timed out during the initialisation, waiting for " + list_ranks(missing));
}

Status InProcessTree::watch(std::shared_ptr<FailureState> failure, Witness witness) {
  const MutexLock lock(control_->mutex);
  failure->expect_departures(control_->ranks.size());
  me().witness = std::move(witness);
  me().failure = std::move(failure);
  if (!control_->failure.is_ok()) me().failure->fail(control_->failure);
  for (const InProcessControl::Rank& rank : control_->ranks) {
    if (&rank != &me() && rank.refusal.serial != 0 && me().witness.refused) me().witness.refused(rank.refusal);
  }
  for (const std::string& decision : control_->decisions) {
    if (me().witness.decided) me().witness.decided(decision);
  }
  for (const int rank : control_->departed) {
    me().failure->set_departed({rank, control_->ranks[static_cast<std::size_t>(rank)].calls.operations});
  }
  return {};
}

void InProcessTree::announce_failure(const Status& status) {
  if (status.is_ok()) return;
  const MutexLock lock(control_->mutex);
  tell_failure(status.with_context(name_), me().left);
}

void InProcessTree::report_calls(std::vector<CallRecord> calls) {
  const MutexLock lock(control_->mutex);
  bool is_new = false;
  const Status known = control_->ledger.add(rank_, calls, &is_new);
  tell_mismatch(known.is_ok() ? contradicted() : known);
}

// Compares with the calls of ranks that have left.
Status InProcessTree::contradicted() {
  if (!me().witness.calls) return {};
  for (std::size_t r = 0; r < control_->ranks.size(); ++r) {
    const InProcessControl::Rank& other = control_->ranks[r];
    if (!other.parted || &other == &me()) continue;
    Status s = contradiction(rank_, me().witness.calls(), static_cast<int>(r), other.calls);
    if (!s.is_ok()) return s;
  }
  return {};
}

Status InProcessTree::compare_with_departed() {
  const MutexLock lock(control_->mutex);
  return contradicted();
}

// All ranks, this one among them.
void InProcessTree::tell_mismatch(const Status& status) {
  if (status.is_ok() || me().left || !control_->failure.is_ok()) return;
  tell_failure(status, false);
  if (me().failure) me().failure->fail(status);
}

void InProcessTree::compare_calls() {
  const MutexLock lock(control_->mutex);
  for (std::size_t r = 0; r < control_->ranks.size(); ++r) {
    const InProcessControl::Rank& rank = control_->ranks[r];
    bool is_new = false;
    const CallSummary summary = rank.parted || !rank.witness.calls ? rank.calls : rank.witness.calls();
    const Status known = control_->ledger.add(static_cast<int>(r), summary.calls, &is_new);
    if (!known.is_ok()) return tell_mismatch(known);
  }
}

// The first rank makes the shared state.
Result<std::unique_ptr<ControlTree>> InProcessTree::split(std::uint64_t id, std::vector<int> members,
                                                          GivesUp gives_up) {
  const int rank = index_of(rank_, members);
  std::shared_ptr<InProcessControl> control;
  {
    const MutexLock lock(control_->mutex);
    forget_children();
    if (Status s = check_id(id); !s.is_ok()) return s;
    auto at = control_->children.find({id, members});
    if (at == control_->children.end()) {
      InProcessControl::ChildName name{id, std::move(members)};
      InProcessControl::Child child;
      child.kept = std::make_shared<InProcessControl>(static_cast<int>(name.members.size()));
      child.control = child.kept;
      child.missing = name.members;
      child.ends_with_leave = static_cast<bool>(gives_up);
      child.serial = control_->children_made++;
      if (Status s = fail_clashing(name); !s.is_ok()) fail_all(*child.kept, s);
      at = control_->children.emplace(std::move(name), std::move(child)).first;
    }
    InProcessControl::Child& child = at->second;
    control = child.kept;
    std::erase(child.missing, rank_);
    if (child.missing.empty()) {
      child.kept.reset();
    } else {
      end_hopeless(at->first, child);
    }
  }
  return std::unique_ptr<ControlTree>(std::make_unique<InProcessTree>(rank, std::move(control), std::move(gives_up)));
}

// Each rank joins one communicator with this id, once.
Status InProcessTree::check_id(std::uint64_t id) {
  for (auto at = control_->children.lower_bound({id, {}}); at != control_->children.end() && at->first.id == id; ++at) {
    if (!contains(at->first.members, rank_) || contains(at->second.missing, rank_)) continue;
    return Status::invalid_usage(fmt::format("another communicator of the job has the id {}", id));
  }
  return {};
}

// Fails the communicators that have the same id and other members. Not ok if there are any: the failure of the new one.
Status InProcessTree::fail_clashing(const InProcessControl::ChildName& name) {
  Status clash;
  for (auto at = control_->children.lower_bound({name.id, {}});
       at != control_->children.end() && at->first.id == name.id; ++at) {
    const std::vector<int>& others = at->first.members;
    const auto common = std::find_if(others.begin(), others.end(), [&](int other) {
      return contains(name.members, other) && !contains(at->second.missing, other);
    });
    clash = clash_caused_by(common == others.end() ? -1 : *common, name.members);
    if (const auto control = at->second.control.lock()) fail_all(*control, clash_caused_by(rank_, others));
  }
  return clash;
}

// Forgets communicators that have ended on all ranks, and the oldest abandoned ones if there are too many.
void InProcessTree::forget_children() {
  auto& children = control_->children;
  std::erase_if(children, [](const auto& child) { return child.second.control.expired(); });
  while (true) {
    std::size_t abandoned = 0;
    auto oldest = children.end();
    for (auto at = children.begin(); at != children.end(); ++at) {
      // The count does not rise meanwhile: split() copies the pointer under the same mutex.
      if (at->second.kept.use_count() != 1) continue;
      abandoned += at->first.members.size();
      if (oldest == children.end() || at->second.serial < oldest->second.serial) oldest = at;
    }
    if (abandoned <= kMaxAbandonedMembers) return;
    children.erase(oldest);
  }
}

// A member that has left can no longer make its part.
void InProcessTree::end_hopeless(const InProcessControl::ChildName& name, InProcessControl::Child& child) {
  const auto left = std::find_if(child.missing.begin(), child.missing.end(), [this](int rank) {
    control_->mutex.assert_held();
    return control_->ranks[static_cast<std::size_t>(rank)].left;
  });
  if (!child.ends_with_leave || left == child.missing.end()) return;
  fail_all(*child.kept, Status::remote(fmt::format("rank {} left before it had made its part of this communicator",
                                                   index_of(*left, name.members))));
}

// If there is no memory for the text, they wait for this rank until the timeout.
void InProcessTree::end_children() noexcept {
  (void)guarded([&] {
    control_->mutex.assert_held();
    for (auto& [name, child] : control_->children) end_hopeless(name, child);
    return Status();
  });
}

bool InProcessTree::finish(std::int64_t wait_ms) {
  const MutexLock lock(control_->mutex);
  if (me().left || !me().failure) return false;
  part();
  const Deadline deadline = Deadline::after_ms(wait_ms);
  while (control_->parted != control_->ranks.size() && control_->failure.is_ok() && !me().failure->failed()) {
    if (!control_->changed.wait_until(control_->mutex, deadline)) break;
  }
  return control_->parted == control_->ranks.size();
}

// Called once, after this rank's last call: compares its calls with those of the others. Allocates memory only if they
// differ. (A rank that leaves for lack of memory has made all calls for which the others wait.)
void InProcessTree::part() {
  if (me().parted) return;
  if (me().witness.calls) me().calls = me().witness.calls();
  control_->departed.push_back(rank_);
  me().parted = true;
  ++control_->parted;
  control_->changed.notify_all();
  for (std::size_t r = 0; r < control_->ranks.size(); ++r) {
    const InProcessControl::Rank& other = control_->ranks[r];
    if (&other == &me()) continue;
    if (other.failure) other.failure->set_departed({rank_, me().calls.operations});
    if (me().failure && me().failure->failed()) continue;
    (void)guarded([&] {
      control_->mutex.assert_held();
      return tell_mismatch(compared_with(static_cast<int>(r))), Status();
    });
  }
}

// Compares with `peer`; this rank has parted.
Status InProcessTree::compared_with(int peer) {
  const InProcessControl::Rank& other = control_->ranks[static_cast<std::size_t>(peer)];
  if (other.parted) return difference(rank_, me().calls, peer, other.calls);
  return other.witness.calls ? contradiction(rank_, me().calls, peer, other.witness.calls()) : Status();
}

// Ranks of one process cannot be silent: their positions are in shared memory. The monitor reads all of them itself.
void InProcessTree::ask(Question question) {
  if (question.all) return;
  const MutexLock lock(control_->mutex);
  Answer answer{std::move(question), {}};
  for (std::size_t r = 0; r < control_->ranks.size(); ++r) {
    const InProcessControl::Rank& rank = control_->ranks[r];
    if (rank.parted) continue;
    const Whereabouts at = rank.witness.where ? rank.witness.where() : Whereabouts{};
    if (is_before(at.sequence, answer.question.sequence))
      answer.absent.push_back({static_cast<int>(r), false, at.sequence, at.inside});
  }
  for (const InProcessControl::Rank& rank : control_->ranks) {
    if (rank.witness.answered) rank.witness.answered(answer);
  }
}

void InProcessTree::tell_decision(const std::string& decision) {
  const MutexLock lock(control_->mutex);
  if (me().left || !me().failure) return;
  control_->decisions.push_back(decision);
  for (InProcessControl::Rank& rank : control_->ranks) {
    if (&rank != &me() && rank.witness.decided) rank.witness.decided(decision);
  }
}

void InProcessTree::report_refusal(const Refusal& refusal, std::int64_t /*wait_ms*/) {
  const MutexLock lock(control_->mutex);
  if (me().left || !me().failure) return;
  Refusal& own = me().refusal;
  if (!is_before(own.serial, refusal.serial)) return;
  own = refusal;
  own.rank = rank_;
  for (InProcessControl::Rank& rank : control_->ranks) {
    if (&rank != &me() && rank.witness.refused) rank.witness.refused(own);
  }
}

void InProcessTree::tell_failure(const Status& status, bool suppressed) {
  if (suppressed || !control_->failure.is_ok()) return;
  control_->failure = status;
  for (InProcessControl::Rank& rank : control_->ranks) {
    if (&rank != &me() && rank.failure) rank.failure->fail(status);
  }
  control_->changed.notify_all();
}

void InProcessTree::leave() {
  const MutexLock lock(control_->mutex);
  if (me().left) return;
  part();
  me().witness = {};
  me().left = true;
  control_->changed.notify_all();
  end_children();
}

RankSet InProcessTree::ranks_that_are(bool InProcessControl::Rank::*state) const {
  return RankSet::where(static_cast<int>(control_->ranks.size()), [&](int rank) {
    control_->mutex.assert_held();
    return control_->ranks[static_cast<std::size_t>(rank)].*state;
  });
}

Result<Agreement> InProcessTree::agree(const Proposal& own, Deadline deadline, const GivesUp& gives_up) {
  const MutexLock lock(control_->mutex);
  if (me().left || !me().failure) return Status::invalid_usage("the communicator has ended");
  const ThreadAgreements::Pending pending = control_->agreements.give(rank_, own);
  control_->changed.notify_all();
  const RankSet all(0, static_cast<int>(control_->ranks.size()));
  for (;;) {
    const auto result = control_->agreements.look(pending, all, ranks_that_are(&InProcessControl::Rank::dead),
                                                  ranks_that_are(&InProcessControl::Rank::left), deadline.passed());
    if (result) return control_->changed.notify_all(), control::result_for(own, *result);
    if (Status s = gives_up ? gives_up() : Status(); !s.is_ok()) return s;
    control_->changed.wait_until(control_->mutex, Deadline::after_ms(deadline.left_ms(kFailureCheckMs)));
  }
}

}  // namespace

Result<std::vector<Job>> make_in_process_jobs(int ranks) {
  if (ranks < 1 || ranks > kMaxRanks) return Status::invalid_argument("a job has 1 to 1048576 ranks");
  Secret secret{};
  if (Status s = net::random_bytes(secret.data(), secret.size()); !s.is_ok()) return s;
  const auto control = std::make_shared<InProcessControl>(ranks);
  std::vector<Job> jobs;
  for (int rank = 0; rank < ranks; ++rank) {
    Job job;
    job.rank = rank;
    job.ranks = ranks;
    job.secret = secret;
    if (ranks > 1) job.tree = std::make_unique<InProcessTree>(rank, control);
    jobs.push_back(std::move(job));
  }
  return jobs;
}

}  // namespace tutti::internal
