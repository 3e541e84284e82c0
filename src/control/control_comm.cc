#include "control/control_comm.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "control/call_comparison.h"
#include "control/socket_tree.h"
#include "os/clock.h"

namespace tutti::internal::control {
namespace {

// How often a rank that waits for the others' leave notices checks whether it should continue.
constexpr std::int64_t kLookMs = 20;
// How long before its deadline a rank wants the result of an agreement, but at most a quarter of the time.
constexpr std::int64_t kAnswerMs = 1000;
// The tree's thread answers in microseconds, unless the machine is very busy.
constexpr std::int64_t kCompareMs = 1000;

}  // namespace

ControlComm::ControlComm(std::shared_ptr<SocketTree> tree, CommId id, std::vector<int> members, CommId parent,
                         GivesUp gives_up)
    : tree_(std::move(tree)),
      members_(id, std::move(members), tree_->rank(), tree_->ranks()),
      gives_up_(std::move(gives_up)),
      agent_(tree_.get(), members_, parent, static_cast<bool>(gives_up_), &shared_) {}

ControlComm::~ControlComm() {
  if (!enlisted_ || tree_->is_forked() || tree_->comms().has_ended()) return;
  {
    const MutexLock lock(shared_.mutex);
    shared_.commands.ending = true;
  }
  tree_->signal();
  tree_->comms().await_release(agent_.id());
}

Status ControlComm::enlist() {
  Status s = tree_->comms().enlist(&agent_);
  enlisted_ = s.is_ok();
  return s;
}

Result<std::unique_ptr<ControlTree>> ControlComm::split(std::uint64_t id, std::vector<int> members, GivesUp gives_up) {
  if (tree_->is_forked()) return Status::invalid_usage("a communicator of the parent process cannot be split");
  std::vector<int> job_ranks;
  for (const int rank : members) {
    if (rank < 0 || rank >= members_.size()) return Status::internal("split: no such rank");
    job_ranks.push_back(members_.job_rank_of(rank));
  }
  std::vector<int> sorted = job_ranks;
  std::sort(sorted.begin(), sorted.end());
  const bool twice = std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end();
  if (twice || !std::binary_search(sorted.begin(), sorted.end(), tree_->rank())) {
    return Status::internal("split: the members are not different ranks with this one among them");
  }
  if (members.size() == 1) return std::unique_ptr<ControlTree>();
  {
    const MutexLock lock(shared_.mutex);
    if (shared_.commands.mute()) return Status::invalid_usage("a communicator that has ended cannot be split");
  }
  auto child = std::make_unique<ControlComm>(tree_, id, std::move(job_ranks), agent_.id(), std::move(gives_up));
  if (Status s = child->enlist(); !s.is_ok()) return s;
  tree_->signal();
  return std::unique_ptr<ControlTree>(std::move(child));
}

Result<std::vector<std::string>> ControlComm::all_gather(const std::string& mine, Deadline deadline) {
  if (tree_->is_forked()) return Status::invalid_usage("a communicator of the parent process cannot be used");
  const std::uint32_t round = agent_.gathers().begin(mine);
  tree_->signal();
  auto gathered = agent_.gathers().await(round, deadline, gives_up_);
  if (!gathered.is_ok()) announce_failure(gathered.status());
  return gathered;
}

Status ControlComm::watch(std::shared_ptr<FailureState> failure, Witness witness) {
  auto watching = std::make_shared<const Watching>(Watching{std::move(failure), std::move(witness)});
  const MutexLock lock(shared_.mutex);
  shared_.watching = watching;
  for (const auto& [rank, refusal] : std::exchange(shared_.early_refusals, {})) {
    if (watching->witness.refused) watching->witness.refused(refusal);
  }
  for (const std::string& decision : std::exchange(shared_.early_decisions, {})) {
    if (watching->witness.decided) watching->witness.decided(decision);
  }
  if (!shared_.failure.is_ok()) watching->failure->fail(shared_.failure);
  for (const LeaveNotice& left : shared_.departed) {
    for (const int rank : members_.ranks_at(left.places)) {
      watching->failure->set_departed({rank, left.calls.operations});
    }
  }
  if (watching->witness.prepare_reconnects) tree_->signal();  // it waits without these descriptors
  return {};
}

// ---- Commands -----------------------------------------------------------------------------------

bool ControlComm::takes_commands() const {
  return !shared_.commands.mute() && shared_.watching != nullptr;
}

template <class Write>
void ControlComm::command(Write write) {
  if (tree_->is_forked()) return;
  const MutexLock lock(shared_.mutex);
  if (!takes_commands()) return;
  write(&shared_.commands);
  tree_->signal();
}

void ControlComm::announce_failure(const Status& status) {
  if (tree_->is_forked() || status.is_ok()) return;
  const MutexLock lock(shared_.mutex);
  if (shared_.commands.mute()) return;
  if (shared_.commands.announcement.is_ok()) shared_.commands.announcement = status;
  tree_->signal();
}

void ControlComm::report_calls(std::vector<CallRecord> calls) {
  command([&](Commands* commands) { commands->reports.push_back(std::move(calls)); });
}

void ControlComm::ask(Question question) {
  command([&](Commands* commands) { commands->questions.push_back(std::move(question)); });
}

void ControlComm::tell_decision(const std::string& decision) {
  command([&](Commands* commands) { commands->decisions.push_back(decision); });
}

void ControlComm::tell_lasting_decision(int kind, const std::string& decision) {
  command([&](Commands* commands) { commands->lasting_decisions.emplace_back(kind, decision); });
}

void ControlComm::compare_calls() {
  command([](Commands* commands) { commands->comparing = true; });
}

void ControlComm::report_refusal(const Refusal& refusal, std::int64_t wait_ms) {
  const Deadline deadline = Deadline::after_ms(wait_ms);
  command([&](Commands* commands) {
    // another thread may have stored a later one
    if (!commands->refusal || is_before(commands->refusal->serial, refusal.serial)) commands->refusal = refusal;
  });
  if (tree_->is_forked()) return;
  const MutexLock lock(shared_.mutex);
  while (takes_commands() && is_before(shared_.refusal_told, refusal.serial) && !deadline.passed()) {
    shared_.changed.wait_until(shared_.mutex, deadline);
  }
}

Status ControlComm::compare_with_departed() {
  if (tree_->is_forked()) return {};
  const std::shared_ptr<const Watching> watching = shared_.who_watches();
  if (watching == nullptr) return {};
  for (const LeaveNotice& left : shared_.all_departed()) {
    const CallSummary own = watching->witness.calls ? watching->witness.calls() : CallSummary();
    const int rank = members_.rank_at(left.places.front());
    if (Status s = contradiction(members_.rank(), own, rank, left.calls); !s.is_ok()) return s;
  }
  return {};
}

// ---- Leaving ------------------------------------------------------------------------------------

// Waits for a change; false if the wait is over.
bool ControlComm::look_again(Deadline deadline) {
  if (shared_.watching->failure->failed() || deadline.passed()) return false;
  shared_.changed.wait_until(shared_.mutex, Deadline::after_ms(kLookMs));
  return true;
}

AgreementName ControlComm::next_agreement(const Proposal& own) {
  std::vector<int> excluded = own.excluded;
  for (int& rank : excluded) rank = members_.job_rank_of(rank);
  std::sort(excluded.begin(), excluded.end());
  std::erase_if(agreements_, [&](const auto& entry) { return is_past_series(entry.first.first, own.series); });
  AgreementName name{members_.name(), {}, own.series, agreements_[{own.series, excluded}]++};
  for (const int rank : excluded) name.excluded.append(rank, rank + 1);
  return name;
}

// The coordinator ends the wait a little earlier than the deadline, so that all have the same result.
Result<Agreement> ControlComm::agree(const Proposal& own, Deadline deadline, const GivesUp& gives_up) {
  if (tree_->is_forked()) return Status::invalid_usage("a communicator of the parent process cannot be used");
  const MutexLock lock(shared_.mutex);
  if (!takes_commands()) return Status::invalid_usage("the communicator has ended");
  const std::int64_t wait_ms = deadline.left_ms(std::numeric_limits<int>::max());
  Contribution mine{next_agreement(own), {}, wait_ms - std::min(wait_ms / 4, kAnswerMs)};
  mine.tally = Tally::of(members_.self(), own);
  shared_.awaited = mine.name.key();
  shared_.agreed.reset();
  shared_.commands.contribution = mine;
  tree_->signal();
  Status ended;
  bool gave_up = false;
  while (!shared_.agreed && ended.is_ok()) {
    if (!gave_up && deadline.passed()) {
      // The others need not fail because of a rank that is late.
      if (own.takes_late) return shared_.awaited.clear(), Status::timeout("timed out: this rank is late");
      // The tree's thread answers: no decision of the others can come between.
      gave_up = true;
      shared_.commands.given_up = mine;
      tree_->signal();
    }
    ended = shared_.cut_off;
    if (ended.is_ok() && gives_up) ended = gives_up();
    if (!ended.is_ok()) break;
    shared_.changed.wait_until(shared_.mutex,
                               Deadline::after_ms(gave_up ? kFailureCheckMs : deadline.left_ms(kFailureCheckMs)));
  }
  shared_.awaited.clear();
  if (shared_.agreed) return result_for(own, *std::exchange(shared_.agreed, std::nullopt));
  return ended;
}

Result<RankSet> ControlComm::dead() const {
  const MutexLock lock(shared_.mutex);
  if (!shared_.cut_off.is_ok()) return shared_.cut_off;
  return shared_.dead;
}

bool ControlComm::finish(std::int64_t wait_ms) {
  if (tree_->is_forked()) return false;
  const MutexLock lock(shared_.mutex);
  if (!takes_commands()) return false;
  shared_.commands.finishing = true;
  tree_->signal();
  const Deadline compared = Deadline::after_ms(kCompareMs);
  while (!shared_.compared && look_again(compared)) {
  }
  const Deadline all_parted = Deadline::after_ms(wait_ms);
  while (!shared_.all_parted && look_again(all_parted)) {
  }
  return shared_.all_parted;
}

void ControlComm::leave() {
  if (tree_->is_forked()) return;
  {
    const MutexLock lock(shared_.mutex);
    if (std::exchange(shared_.commands.leaving, true)) return;
  }
  tree_->signal();
  tree_->comms().await_release(agent_.id());
}

}  // namespace tutti::internal::control
