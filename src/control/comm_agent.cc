#include "control/comm_agent.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "base/rank_list.h"
#include "control/call_comparison.h"
#include "control/socket_tree.h"

namespace tutti::internal::control {
namespace {

// Decisions kept while this rank still makes its part. Ranks that miss one of a choice decide themselves; survivor
// mode tells nothing before all ranks have made their parts.
constexpr std::size_t kEarlyDecisions = 64;

}  // namespace

Notice clash_of_ids(int from) {
  const std::string who = from >= 0 ? fmt::format("rank {}", from) : "a rank that is not among these";
  return {Code::kMismatch, who + " has split off a communicator of other ranks, with the same id"};
}

CommAgent::CommAgent(SocketTree* tree, const CommMembers& members, CommId parent, bool may_miss_members,
                     CommShared* shared)
    : tree_(*tree),
      members_(members),
      parent_(parent),
      may_miss_members_(may_miss_members),
      shared_(*shared),
      gathers_(members, shared, &tree->neighbours()),
      leave_notices_(members, shared, &tree->neighbours(), &gathers_),
      refusals_(members, shared, &tree->neighbours()) {}

// ---- Commands of other threads ------------------------------------------------------------------

bool CommAgent::wants_to_go() const {
  const MutexLock lock(shared_.mutex);
  return shared_.commands.mute();
}

// Returns whether this rank goes, if it has told its peers: a thread that asks to leave during this call has not done
// so yet.
bool CommAgent::handle_commands() {
  Commands commands;
  {
    const MutexLock lock(shared_.mutex);
    std::swap(commands, shared_.commands);
    shared_.commands.leaving = commands.leaving;
    shared_.commands.ending = commands.ending;
  }
  for (auto& [round, part] : commands.parts) {
    if (round == 0 && id() != 0 && members_.own_place().front() == 0) tree_.router().claim(members_.name());
    gathers_.give(round, std::move(part));
  }
  for (const std::string& decision : commands.decisions) tell_decision(pack_decision(members_.name(), decision));
  for (const auto& [kind, decision] : commands.lasting_decisions) {
    lasting_[kind] = pack_decision(members_.name(), decision);
    tell_decision(lasting_[kind]);
  }
  if (!commands.announcement.is_ok()) {
    const Status& cause = commands.announcement;
    tell_failure({cause.code(), fmt::format("rank {}: {}", members_.rank(), cause.message())});
  }
  if (!commands.reports.empty()) judge_departed();
  for (std::vector<CallRecord>& calls : commands.reports) report_own(std::move(calls));
  if (commands.refusal) refusals_.tell(std::move(*commands.refusal), !any_notice_);
  if (commands.contribution) {
    const Contribution& own = *commands.contribution;
    tree_.agreements().give(own.name, own.tally, own.wait_ms);
  }
  if (commands.given_up) tree_.agreements().give_up(commands.given_up->name, commands.given_up->tally.caller);
  for (const Question& question : commands.questions) {
    if (!any_notice_) tree_.inquiries().inquire(id(), question);
  }
  if (commands.comparing) on_compare(pack_compare(members_.name()), nullptr);
  if (commands.finishing || commands.leaving) send_leave_notice();
  if (commands.leaving) pass_on_at_once();
  if (commands.ending && !leave_notices_.has_parted()) {
    tell_failure({Code::kRemoteError, fmt::format("rank {} ended without leaving", members_.rank())});
  }
  return commands.leaving || commands.ending;
}

// ---- Frames -------------------------------------------------------------------------------------

bool CommAgent::hear(const Header& header, net::Unpacker* unpacker, const std::string& frame, const Neighbour* from) {
  const int ranks = members_.ranks();
  const FrameKind kind = header.kind;
  if (kind == FrameKind::kParts) {
    Parts parts;
    // With other members, the parts may have other places.
    const bool same = header.members == members_.name().members;
    if (!unpack_parts(unpacker, ranks, same ? members_.size() : ranks, &parts)) return false;
    const int said_by = members_.rank_of(parts.from);
    return !are_members(header.members, said_by) || on_parts(std::move(parts), from);
  }
  if (!are_members(header.members, -1)) return true;
  if (kind == FrameKind::kDecision) {
    std::string decision;
    if (!unpack_decision(unpacker, &decision)) return false;
    on_decision(std::move(decision));
    return true;
  }
  if (kind == FrameKind::kNotice || kind == FrameKind::kClash) {
    Notice notice;
    if (!unpack_notice(unpacker, &notice)) return false;
    on_notice(notice, frame, kind == FrameKind::kClash ? Reach::kJob : Reach::kMembers, from);
    return true;
  }
  if (kind == FrameKind::kLeaveNotices) {
    std::vector<LeaveNotice> leave_notices;
    if (!unpack_leave_notices(unpacker, members_.size(), &leave_notices)) return false;
    on_leave_notices(leave_notices, from);
    return true;
  }
  if (kind == FrameKind::kRefusal) {
    Refusal refusal;
    if (!unpack_refusal(unpacker, ranks, &refusal)) return false;
    refusals_.hear(std::move(refusal), frame, from);
    return true;
  }
  if (kind != FrameKind::kCompare || !unpacker->complete()) return false;
  on_compare(frame, from);
  return true;
}

// Whether a frame names this communicator's members. `from`: the rank that made the frame; -1 if not known.
bool CommAgent::are_members(const std::string& members, int from) {
  if (members == members_.name().members) return true;
  fail_by_clash(from);
  return false;
}

bool CommAgent::on_parts(Parts parts, const Neighbour* from) {
  const std::uint32_t round = parts.round;
  const RankSet places = parts.places;
  const int said_by = members_.rank_of(parts.from);
  switch (gathers_.hear(std::move(parts), from)) {
    case AllGather::Heard::kKept:
      heard_of_.add(places);
      gathers_.pass_on(round, false);
      return true;
    case AllGather::Heard::kLate: return true;
    case AllGather::Heard::kAhead:
      if (id() == 0) return false;
      fail_by_clash(said_by);  // that rank gathers without this one
      return true;
  }
  return true;
}

void CommAgent::tell_decision(const std::string& frame) {
  tree_.neighbours().flood_to(members_.name().members, frame, nullptr);
}

void CommAgent::on_decision(std::string decision) {
  std::shared_ptr<const Watching> watching;
  {
    const MutexLock lock(shared_.mutex);
    watching = shared_.watching;
    if (watching == nullptr && shared_.early_decisions.size() < kEarlyDecisions) {
      shared_.early_decisions.push_back(std::move(decision));
    }
  }
  if (watching != nullptr && watching->witness.decided) watching->witness.decided(decision);
}

// ---- Failures -----------------------------------------------------------------------------------

// After the first failure of a communicator, no later one is reported.
void CommAgent::on_notice(const Notice& notice, const std::string& frame, Reach reach, const Neighbour* from) {
  if (std::exchange(any_notice_, true)) return;
  pass_on_at_once();  // everything that arrived before it
  // Tells the other ranks first: a thread that learns of the failure here may end this process.
  notice_ = frame;
  // This rank's own notice goes to all neighbours: see frame_router.h. A notice for all ranks of the job has been sent.
  if (reach == Reach::kMembers) {
    from == nullptr ? tree_.neighbours().flood(frame, nullptr)
                    : tree_.neighbours().flood_to(members_.name().members, frame, from);
  }
  tree_.neighbours().flush();
  fail_here(Status(notice.code, notice.text));
}

void CommAgent::fail(const Notice& notice) {
  on_notice(notice, pack_notice(members_.name(), notice), Reach::kMembers, nullptr);
}

// Members of the other communicator may not be members of this one, so the notice goes to all ranks. It is sent even if
// this communicator has failed before: its members do not forward the frames of the other one.
void CommAgent::fail_by_clash(int from) {
  if (std::exchange(told_clash_, true)) return;
  const Notice notice = clash_of_ids(from);
  const std::string frame = pack_notice(members_.name(), notice, FrameKind::kClash);
  tree_.router().tell_clash(frame, nullptr);
  on_notice(notice, frame, Reach::kJob, nullptr);
}

// Tells only the other ranks: this one knows.
void CommAgent::tell_failure(const Notice& notice) {
  if (std::exchange(any_notice_, true)) return;
  pass_on_at_once();
  notice_ = pack_notice(members_.name(), notice);
  tree_.neighbours().flood(notice_, nullptr);
}

void CommAgent::fail_here(const Status& status) noexcept {
  std::shared_ptr<const Watching> watching;
  {
    const MutexLock lock(shared_.mutex);
    if (shared_.failure.is_ok()) shared_.failure = status;
    watching = shared_.watching;
    shared_.changed.notify_all();
  }
  if (watching != nullptr) watching->failure->fail(status);
}

void CommAgent::fail_late() {
  fail({Code::kTimeout,
        fmt::format("rank {} gave up in an agreement in which other ranks have a result", members_.rank())});
}

void CommAgent::cut_off(const Status& why) noexcept {
  {
    const MutexLock lock(shared_.mutex);
    if (shared_.cut_off.is_ok()) shared_.cut_off = why;
  }
  fail_here(why);
}

// The other ranks receive the death itself.
void CommAgent::hear_death(const Death& death) {
  const int rank = members_.rank_of(death.rank);
  if (rank < 0 || leave_notices_.has_departed(rank)) return;
  {
    const MutexLock lock(shared_.mutex);
    shared_.dead.add(RankSet(rank, rank + 1));
  }
  if (std::exchange(any_notice_, true)) return;
  fail_here(Status::remote(describe_rank(rank, death.host, death.pid) +
                           " died: connection lost (its process was killed or ended without destroying its "
                           "communicator, or its host is unreachable)"));
}

// If the rank has not made its part yet, it will not.
void CommAgent::hear_bye(int job_rank) {
  const int rank = members_.rank_of(job_rank);
  if (id() == 0 || rank < 0) return;
  if (heard_of_.contains(members_.place_of(rank)) || leave_notices_.has_departed(rank)) return;
  fail({Code::kRemoteError, list_ranks({rank}) + " left before it had made its part of this communicator"});
}

void CommAgent::hear_left(CommId comm, int job_rank) {
  if (may_miss_members_ && comm == parent_) hear_bye(job_rank);
}

void CommAgent::hear_departed(const CommAgent& comm) {
  if (!may_miss_members_) return;
  for (const LeaveNotice& left : comm.shared_.all_departed()) {
    left.places.each([&](int place) { hear_left(comm.id(), comm.members_.job_rank_of(comm.members_.rank_at(place))); });
  }
}

// ---- Inquiries ----------------------------------------------------------------------------------

Whereabouts CommAgent::whereabouts() const {
  const auto watching = shared_.who_watches();
  return watching != nullptr && watching->witness.where ? watching->witness.where() : Whereabouts{};
}

std::string CommAgent::report() const {
  const auto watching = shared_.who_watches();
  return watching != nullptr && watching->witness.report ? watching->witness.report() : std::string();
}

std::string CommAgent::reason() const {
  const auto watching = shared_.who_watches();
  if (watching == nullptr || !watching->witness.reason) return {};
  // Without memory for it, the answer has no reason.
  auto text = guarded_result([&]() -> Result<std::string> { return watching->witness.reason(); });
  return text.is_ok() && text->size() <= kMostReportBytes ? std::move(*text) : std::string();
}

std::optional<bool> CommAgent::attend_listeners() const {
  const auto watching = shared_.who_watches();
  if (watching == nullptr || !watching->witness.attend_listeners) return std::nullopt;
  return watching->witness.attend_listeners();
}

bool CommAgent::remakes_connections() const {
  const auto watching = shared_.who_watches();
  return watching != nullptr && watching->witness.remakes_connections;
}

bool CommAgent::prepare_reconnects(net::PollSet* set) const {
  const auto watching = shared_.who_watches();
  if (watching == nullptr || !watching->witness.prepare_reconnects) return false;
  watching->witness.prepare_reconnects(set);
  return true;
}

bool CommAgent::process_reconnects(const net::PollSet& set) const {
  const auto watching = shared_.who_watches();
  if (watching == nullptr || !watching->witness.process_reconnects) return false;
  watching->witness.process_reconnects(set);
  return true;
}

// The answer is in this communicator's numbering and lists only its members.
void CommAgent::hear_answer(const Answer& answer) {
  const auto watching = shared_.who_watches();
  if (watching == nullptr) return;
  const auto& told = answer.question.all ? watching->witness.surveyed : watching->witness.answered;
  if (!told) return;
  Answer own{answer.question, {}};
  for (Absence absence : answer.absent) {
    absence.rank = members_.rank_of(absence.rank);
    if (absence.rank >= 0) own.absent.push_back(absence);
  }
  std::sort(own.absent.begin(), own.absent.end(), [](const Absence& a, const Absence& b) { return a.rank < b.rank; });
  told(own);
}

// ---- Agreements ---------------------------------------------------------------------------------

void CommAgent::hear_agreed(const AgreementName& name, const Decision& decision) {
  const MutexLock lock(shared_.mutex);
  if (shared_.awaited != name.key()) return;
  shared_.agreed = result_of(decision, [this](int job_rank) { return members_.rank_of(job_rank); });
  shared_.changed.notify_all();
}

RankSet CommAgent::left_without(const AgreementName& name) const {
  RankSet places;
  for (const LeaveNotice& left : shared_.all_departed()) {
    if (!std::binary_search(left.agreements.begin(), left.agreements.end(), name.hash())) places.add(left.places);
  }
  if (members_.name().members.empty()) return places;
  return RankSet::where(places.empty() ? 0 : members_.ranks(), [&](int job_rank) {
    const int rank = members_.rank_of(job_rank);
    return rank >= 0 && places.contains(members_.place_of(rank));
  });
}

// ---- Leaving ------------------------------------------------------------------------------------

void CommAgent::on_leave_notices(const std::vector<LeaveNotice>& leave_notices, const Neighbour* from) {
  for (const LeaveNotice& leave_notice : leave_notices) {
    std::shared_ptr<const Watching> watching;
    const RankSet is_new = leave_notices_.hear(leave_notice, from, &watching);
    if (is_new.empty()) continue;
    heard_of_.add(is_new);
    // The notices are stored first: a thread that sees the departure may compare calls with them.
    const std::vector<int> ranks = members_.ranks_at(is_new);
    for (const int rank : ranks) {
      if (watching != nullptr) watching->failure->set_departed({rank, leave_notice.calls.operations});
    }
    judge(ranks.front(), leave_notice.calls);
    for (const int rank : ranks) tree_.tell_left(id(), members_.job_rank_of(rank));
  }
  follow_departures();
}

void CommAgent::follow_departures() {
  leave_notices_.wake_waiting();
  leave_notices_.pass_on(false);
  leave_notices_.is_over() ? tree_.agreements().forget(id()) : tree_.agreements().look_again();
}

// Sent once: this rank calls nothing more.
void CommAgent::send_leave_notice() {
  if (leave_notices_.has_parted()) return;
  leave_notices_.part(own_calls(), tree_.agreements().contributed_to(id()));
  judge_departed();
  follow_departures();
}

// ---- What ranks have called ---------------------------------------------------------------------

CallSummary CommAgent::own_calls() const {
  const auto watching = shared_.who_watches();
  return watching != nullptr && watching->witness.calls ? watching->witness.calls() : CallSummary();
}

// A rank that has not sent its leave notice may still call what the other has called.
void CommAgent::judge(int rank, const CallSummary& calls) {
  const auto watching = shared_.who_watches();
  if (watching == nullptr || watching->failure->failed()) return;
  const Status judged = leave_notices_.has_parted()
                            ? difference(members_.rank(), leave_notices_.own_calls(), rank, calls)
                            : contradiction(members_.rank(), own_calls(), rank, calls);
  if (!judged.is_ok()) fail({judged.code(), judged.message()});
}

void CommAgent::judge_departed() {
  for (const LeaveNotice& left : shared_.all_departed()) judge(members_.rank_at(left.places.front()), left.calls);
}

// Only new records go up, so that a thousand ranks that wait for one cost one message each.
void CommAgent::hear_calls(Calls calls, const Neighbour* from) {
  const int rank = members_.rank_of(calls.rank);
  if (rank < 0) return;  // a rank of another communicator with the same id: every rank gets that error
  bool is_new = false;
  const Status known = ledger_.add(rank, calls.records, &is_new);
  if (!known.is_ok()) return fail({known.code(), known.message()});
  if (is_new && !calls.down) tree_.router().pass_on_calls(id(), std::move(calls), from);
}

void CommAgent::report_own(std::vector<CallRecord> calls) {
  hear_calls({false, members_.self(), std::move(calls)}, nullptr);
}

// Once in the life of a communicator: the rank that asks knows that ranks differ, and no operation succeeds after that.
void CommAgent::on_compare(const std::string& frame, const Neighbour* from) {
  if (std::exchange(asked_for_calls_, true)) return;
  tree_.neighbours().flood_to(members_.name().members, frame, from);
  report_own(own_calls().calls);
  // A rank that has left cannot be asked, but its leave notice has its calls.
  for (const LeaveNotice& left : shared_.all_departed()) {
    hear_calls({false, members_.job_rank_of(members_.rank_at(left.places.front())), left.calls.calls}, nullptr);
  }
}

// ---- Merging and resending ----------------------------------------------------------------------

void CommAgent::pass_on_at_once() {
  gathers_.pass_on_all();
  leave_notices_.pass_on(true);
}

std::int64_t CommAgent::due_ns() const {
  const std::int64_t parts = gathers_.due_ns();
  const std::int64_t notices = leave_notices_.due_ns();
  return parts == 0 || notices == 0 ? parts + notices : std::min(parts, notices);
}

void CommAgent::advance(std::int64_t now_ns) {
  gathers_.advance(now_ns);
  leave_notices_.advance(now_ns);
}

void CommAgent::meet(int job_rank) {
  leave_notices_.meet(job_rank);
  gathers_.meet(job_rank);
}

// Resends in the original order, and includes other ranks' messages: those ranks may be gone, or a member that already
// knows a message may not have forwarded it.
void CommAgent::say_again() {
  for (const std::string& frame : told()) tree_.neighbours().flood(frame, nullptr);
  if (asked_for_calls_) {
    tree_.neighbours().flood(pack_compare(members_.name()), nullptr);
    tree_.router().pass_on_calls(id(), {false, members_.self(), own_calls().calls}, nullptr);
  }
}

// All ranks are members of the job's first communicator: if one dies while they gather, the all-gather fails, and if
// one leaves, it has forwarded all parts before.
std::vector<std::string> CommAgent::parts() const {
  return id() != 0 && !leave_notices_.is_over() ? gathers_.needed() : std::vector<std::string>();
}

std::vector<std::string> CommAgent::farewell() const {
  std::vector<std::string> result = parts();
  const auto& refusals = refusals_.last();
  if (const auto own = refusals.find(members_.rank()); own != refusals.end()) result.push_back(own->second.frame);
  for (const auto& [kind, frame] : lasting_) result.push_back(frame);
  if (!notice_.empty()) result.push_back(notice_);
  result.push_back(pack_leave_notices(members_.name(), shared_.all_departed()));
  return result;
}

std::vector<std::string> CommAgent::told() const {
  std::vector<std::string> result = parts();
  for (const auto& [rank, refusal] : refusals_.last()) result.push_back(refusal.frame);
  for (const auto& [kind, frame] : lasting_) result.push_back(frame);
  if (!notice_.empty()) result.push_back(notice_);
  if (const std::vector<LeaveNotice> left = shared_.all_departed(); !left.empty()) {
    result.push_back(pack_leave_notices(members_.name(), left));
  }
  return result;
}

}  // namespace tutti::internal::control
