#include "monitor/diagnosis.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "base/rank_list.h"
#include "control/call_record.h"
#include "executor/fingerprint.h"
#include "monitor/lateness.h"

namespace tutti::internal::monitor {
namespace {

using observe::SeenCall;
using observe::SeenProcess;
using observe::SeenRank;

transport::Fingerprint fingerprint_of(const SeenCall& call) {
  transport::Fingerprint fingerprint{call.number, call.call, call.root, 0, 0};
  executor::set_count(&fingerprint, call.count);
  return executor::without_history(executor::without_plan(fingerprint));
}

std::string one(int rank, const Member& member) {
  return fmt::format("rank {} ({}, pid {} on {})", rank, member.process->program, member.process->pid,
                     member.process->host);
}

const char* are(const std::vector<int>& ranks) {
  return ranks.size() == 1 ? "is" : "are";
}

const char* have(const std::vector<int>& ranks) {
  return ranks.size() == 1 ? "has" : "have";
}

std::string ago(const Member& member, std::int64_t ns) {
  return describe_time(member.ms_since(ns));
}

// What the findings of one communicator are made of.
class Examination {
 public:
  Examination(const Members& members, SilentRanks silent, std::int64_t after_ms, CommunicatorFindings* result)
      : members_(members), silent_(std::move(silent)), after_ms_(after_ms), result_(*result) {}

  void run() {
    tell_failures();
    tell_stopped();
    tell_silent();
    tell_ended();
    tell_differences();
    tell_operations();
    tell_agreements();
    tell_waits();
    tell_late();
    tell_unread();
    conclude();
    std::stable_sort(result_.findings.begin(), result_.findings.end(),
                     [](const Finding& a, const Finding& b) { return a.kind < b.kind; });
  }

 private:
  void add(Finding::Kind kind, std::vector<int> ranks, std::string text) {
    result_.findings.push_back({kind, std::move(ranks), std::move(text)});
  }

  // A program may keep a failed communicator for as long as it likes.
  void tell_failures() {
    std::map<std::string, std::vector<int>> ranks_by_error;
    for (const auto& [rank, member] : members_) {
      if (!member.seen->failure) continue;
      result_.failed = true;
      if (member.seen->inside) result_.stuck = true;
      ranks_by_error[member.seen->failure->error].push_back(rank);
    }
    for (const auto& [error, ranks] : ranks_by_error) {
      add(Finding::Kind::kFailed, ranks, fmt::format("it has failed on {}: {}", list_ranks(ranks), error));
    }
  }

  // If a process ends and its communicator has not failed, the other ranks wait for it.
  void tell_ended() {
    std::vector<int> ended;
    for (const auto& [rank, member] : members_) {
      if (member.process->ended && !member.seen->failure) ended.push_back(rank);
    }
    for (const int rank : ended) {
      const Member& member = members_.at(rank);
      const bool agrees = member.seen->agreement.has_value();
      add(Finding::Kind::kEnded, {rank},
          fmt::format("the process of {} has ended, {} {}", one(rank, member),
                      member.inside() || agrees ? "in" : "after",
                      agrees                     ? member.seen->agreement->call
                      : member.transfer()        ? "a " + describe(*member.transfer())
                      : member.last() != nullptr ? describe(*member.last())
                      : member.seen->number == 0 ? std::string("no collective")
                                                 : fmt::format("operation {}", member.seen->number)));
    }
    if (ended.empty() || ended.size() == members_.size()) return;
    const auto waited = [this](int rank) { return members_.at(rank).wait().has_value(); };
    const auto is_victim = [](const auto& member) { return !member.second.seen->failure || member.second.inside(); };
    const bool others_wait = std::any_of(members_.begin(), members_.end(), [](const auto& member) {
      return member.second.seen->failure || (member.second.wait() && !member.second.process->ended);
    });
    if (!others_wait) return;
    result_.stuck = true;
    // If several have ended together, those that waited are not the reason. If all of them waited, one that has failed
    // outside of operations may be.
    const bool any =
        std::all_of(ended.begin(), ended.end(), waited) && std::all_of(members_.begin(), members_.end(), is_victim);
    std::copy_if(ended.begin(), ended.end(), std::inserter(suspects_, suspects_.end()),
                 [&](int rank) { return any || !waited(rank); });
  }

  void tell_stopped() {
    for (const auto& [rank, member] : members_) {
      if (!member.process->stopped()) continue;
      result_.stuck = true;
      suspects_.insert(rank);
      const std::string how = member.process->state == 't'
                                  ? "is held by a debugger"
                                  : fmt::format("is stopped; kill -CONT {} continues it", member.process->pid);
      add(Finding::Kind::kStopped, {rank}, fmt::format("the process of {} {}", one(rank, member), how));
    }
  }

  void tell_silent() {
    for (const auto& [rank, name] : silent_) {
      result_.stuck = true;
      suspects_.insert(rank);
      add(Finding::Kind::kStopped, {rank},
          fmt::format("the process of {} does not answer: it is stopped, or its host cannot be reached", name));
    }
  }

  // The oldest number, of those that are kept, at which ranks have called different operations.
  void tell_differences() {
    std::map<std::uint32_t, std::map<int, const SeenCall*>> by_age;  // calls before the front
    for (const auto& [rank, member] : members_) {
      for (const SeenCall& call : member.seen->calls) by_age[front() - call.number][rank] = &call;
    }
    for (auto age = by_age.rbegin(); age != by_age.rend(); ++age) {
      const auto& [first_rank, first] = *age->second.begin();
      for (const auto& [rank, call] : age->second) {
        if (executor::same_call(fingerprint_of(*call), fingerprint_of(*first))) continue;
        result_.stuck = true;
        add(Finding::Kind::kDiffers, {first_rank, rank},
            fmt::format("rank {} has called {}, and rank {} {}", first_rank, describe(*first), rank, describe(*call)));
        return;
      }
    }
  }

  // The highest number that a rank has called.
  [[nodiscard]] std::uint32_t front() const {
    std::uint32_t front = members_.begin()->second.seen->number;
    for (const auto& [rank, member] : members_) {
      if (is_before(front, member.seen->number)) front = member.seen->number;
    }
    return front;
  }

  void tell_operations() {
    std::vector<int> inside;
    std::vector<int> outside;
    std::vector<int> behind;
    bool waits = false;  // a rank at the front
    for (const auto& [rank, member] : members_) {
      if (member.transfer()) {
        add(Finding::Kind::kOperation, {rank}, fmt::format("rank {} is in a {}", rank, describe(*member.transfer())));
      } else if (member.seen->number != front()) {
        behind.push_back(rank);
      } else {
        (member.inside() ? inside : outside).push_back(rank);
        waits = waits || member.wait().has_value() || is_long_inside(member);
      }
    }
    // Ranks are read one after the other: while they run, some are further because they were read later.
    if (!waits && (!inside.empty() || !behind.empty())) return tell_running();
    if (!inside.empty()) tell_inside(inside);
    if (!outside.empty()) tell_outside(outside, !inside.empty());
    for (const int rank : behind) tell_behind(rank);
    for (const int rank : inside) {
      if (!behind.empty() && is_long_inside(members_.at(rank))) result_.stuck = true;
    }
  }

  // Ranks in such a call wait for those that are not.
  void tell_agreements() {
    std::map<std::string, std::vector<int>> agreeing;  // by call
    bool waits = false;
    for (const auto& [rank, member] : members_) {
      if (!member.seen->agreement) continue;
      agreeing[member.seen->agreement->call].push_back(rank);
      waits = waits || member.ms_since(member.seen->agreement->since_ns) >= after_ms_;
    }
    for (const auto& [call, ranks] : agreeing) {
      std::int64_t longest_ms = 0;
      for (const int rank : ranks) {
        const Member& member = members_.at(rank);
        longest_ms = std::max(longest_ms, member.ms_since(member.seen->agreement->since_ns));
      }
      add(Finding::Kind::kOperation, ranks,
          fmt::format("{} {} been in {}, for {}", list_ranks(ranks), have(ranks), call, describe_time(longest_ms)));
    }
    if (!waits) return;
    result_.stuck = true;
    for (const auto& [rank, member] : members_) {
      if (!member.seen->agreement && !member.wait()) suspects_.insert(rank);
    }
    // Ranks that join wait for those that have not started.
    if (!suspects_.empty()) return;
    for (const int rank : unread()) suspects_.insert(rank);
  }

  // Ranks without a process or a file that could be read.
  [[nodiscard]] std::vector<int> unread() const {
    std::vector<int> ranks;
    for (int rank = 0; rank < result_.ranks; ++rank) {
      if (!members_.contains(rank) && !silent_.contains(rank)) ranks.push_back(rank);
    }
    return ranks;
  }
  [[nodiscard]] bool joins() const {
    return std::any_of(members_.begin(), members_.end(), [](const auto& member) {
      return member.second.seen->agreement && member.second.seen->agreement->call.starts_with("tuttiCommInit");
    });
  }

  // A rank that gets no processor does not say that it waits.
  [[nodiscard]] bool is_long_inside(const Member& member) const {
    return member.inside() && member.last() != nullptr && member.last()->begun_ns &&
           member.ms_since(*member.last()->begun_ns) >= after_ms_;
  }

  void tell_running() {
    std::vector<int> ranks;
    const SeenCall* latest = nullptr;
    for (const auto& [rank, member] : members_) {
      if (member.transfer()) continue;
      ranks.push_back(rank);
      if (member.seen->number == front() && member.last() != nullptr) latest = member.last();
    }
    const std::string at = latest == nullptr ? fmt::format("operation {}", front()) : describe(*latest);
    const bool all_ended =
        std::all_of(ranks.begin(), ranks.end(), [this](int rank) { return members_.at(rank).process->ended; });
    add(Finding::Kind::kOperation, ranks,
        all_ended ? fmt::format("{} {} come up to {}", list_ranks(ranks), have(ranks), at)
                  : fmt::format("{} {} running, up to {}", list_ranks(ranks), are(ranks), at));
  }

  void tell_inside(const std::vector<int>& ranks) {
    const SeenCall* call = nullptr;
    std::int64_t longest_ms = -1;
    for (const int rank : ranks) {
      const Member& member = members_.at(rank);
      if (member.last() == nullptr) continue;
      call = member.last();
      if (call->begun_ns) longest_ms = std::max(longest_ms, member.ms_since(*call->begun_ns));
    }
    if (call == nullptr) return;
    add(Finding::Kind::kOperation, ranks,
        fmt::format("{} {} been in {}{}", list_ranks(ranks), have(ranks), describe(*call),
                    longest_ms < 0 ? "" : " for " + describe_time(longest_ms)));
  }

  // At the front.
  void tell_outside(const std::vector<int>& ranks, bool others_inside) {
    const Member& member = members_.at(ranks.front());
    const SeenCall* const last = member.last();
    if (front() == 0 && joins()) return;
    if (front() == 0) {
      add(Finding::Kind::kOperation, ranks, fmt::format("{} {} called no collective", list_ranks(ranks), have(ranks)));
    } else if (others_inside) {
      add(Finding::Kind::kOperation, ranks,
          fmt::format("{} {} called it as well, and {} not wait in it", list_ranks(ranks), have(ranks),
                      ranks.size() == 1 ? "does" : "do"));
    } else {
      add(Finding::Kind::kOperation, ranks,
          fmt::format("{} {} in no collective{}", list_ranks(ranks), are(ranks),
                      last == nullptr ? "" : "; the last was " + describe(*last) + when(member, *last)));
    }
  }

  // A rank of which others at the front wait.
  void tell_behind(int rank) {
    const Member& member = members_.at(rank);
    const SeenCall* const last = member.last();
    // It may be held up itself.
    if (!member.wait()) suspects_.insert(rank);
    std::string where;
    if (last == nullptr) {
      where = member.seen->number == 0 ? "; it has called no collective" : "";
    } else if (member.inside()) {
      where = fmt::format("; it is still in {}{}", describe(*last),
                          last->begun_ns ? ", for " + ago(member, *last->begun_ns) : "");
    } else {
      where = fmt::format("; its last was {}{}", describe(*last), when(member, *last));
      if (member.seen->outside && !member.seen->behind_since_ns) {
        const std::string cause = describe_now(main_cause(*member.seen->outside), "; it");
        where += cause;
      }
    }
    std::string text = fmt::format("rank {} has not called operation {}", rank, front());
    if (member.seen->behind_since_ns && !member.inside()) {
      text = fmt::format("rank {} has queued operation {}, which has waited {} for earlier work of its stream", rank,
                         member.seen->number + 1, describe_time(member.ms_since(*member.seen->behind_since_ns)));
    }
    add(Finding::Kind::kBehind, {rank}, text + where);
  }

  static std::string when(const Member& member, const SeenCall& call) {
    if (call.ended_ns) return ", which ended " + ago(member, *call.ended_ns) + " ago";
    return call.begun_ns ? ", which began " + ago(member, *call.begun_ns) + " ago" : std::string();
  }

  void tell_waits() {
    std::map<std::string, std::vector<int>> waiting;  // by the awaited ranks
    for (const auto& [rank, member] : members_) {
      if (!member.wait()) continue;
      waiting[describe_awaited(*member.wait())].push_back(rank);
      if (member.wait()->ms >= after_ms_) result_.stuck = true;
    }
    for (const auto& [awaited, ranks] : waiting) {
      std::int64_t ms = 0;
      for (const int rank : ranks) ms = std::max(ms, members_.at(rank).wait()->ms);
      add(Finding::Kind::kWaits, ranks,
          fmt::format("{} {} waited {} for {}", list_ranks(ranks), have(ranks), describe_time(ms), awaited));
    }
  }

  void tell_late() {
    const Lateness lateness = lateness_of(members_);
    for (const LateRank& late : lateness.ranks) {
      if (!is_late(late, lateness)) continue;
      const std::int64_t mean_ns = late.late_ns / late.last;
      const std::string cause = describe(late.cause);
      add(Finding::Kind::kLate, {late.rank},
          fmt::format("{} began {} of the last {} operations after all others here, {}.{} ms on average{}",
                      one(late.rank, members_.at(late.rank)), late.last, lateness.compared, mean_ns / 1'000'000,
                      mean_ns / 100'000 % 10, cause.empty() ? "" : ": " + cause));
      result_.findings.back().cause = name_of(late.cause);
    }
    for (const SlowLink& slow : lateness.links) {
      add(Finding::Kind::kLate, {std::min(slow.from, slow.to), std::max(slow.from, slow.to)},
          fmt::format(
              "the link from rank {} to rank {} is slow: in {} of the last operations, its bytes were on the way "
              "for {} ms on average",
              slow.from, slow.to, slow.times, slow.ns / slow.times / 1'000'000));
      result_.findings.back().cause = "link";
    }
  }

  void tell_unread() {
    const std::vector<int> unread = this->unread();
    if (unread.empty()) return;
    const bool past =
        std::any_of(members_.begin(), members_.end(), [](const auto& member) { return member.second.process->ended; });
    const char* const they = unread.size() == 1 ? "it" : "they";
    add(Finding::Kind::kUnread, unread,
        past
            ? fmt::format("{} {} no file here: {} {} left without a failure, or ran elsewhere", list_ranks(unread),
                          have(unread), they, have(unread))
            : fmt::format("{} {} not found here: on another host, in another container or of another user, or {} {} {}",
                          list_ranks(unread), unread.size() == 1 ? "was" : "were", they, have(unread),
                          joins() ? "not started, or died" : "left or died"));
  }

  // Those for which others wait, and which wait for none themselves; if there is none, the ranks that wait for each
  // other.
  void conclude() {
    if (!result_.stuck) return;
    std::set<int> awaited;
    bool any_wait = false;
    for (const auto& [rank, member] : members_) {
      if (!member.wait()) continue;
      any_wait = true;
      for (const int other : member.wait()->ranks) awaited.insert(other);
    }
    if (!any_wait && suspects_.empty()) return;
    for (const int rank : awaited) {
      const auto found = members_.find(rank);
      if (suspects_.empty() && found != members_.end() && !found->second.wait()) suspects_.insert(rank);
    }
    for (const int rank : awaited) {
      if (suspects_.empty() && members_.find(rank) == members_.end()) suspects_.insert(rank);
    }
    const std::vector<int> ranks(suspects_.begin(), suspects_.end());
    if (ranks.empty()) {
      const std::vector<int> circle(awaited.begin(), awaited.end());
      if (!circle.empty()) add(Finding::Kind::kConclusion, circle, list_ranks(circle) + " wait for each other");
      return;
    }
    constexpr std::size_t kMostNamed = 4;
    std::string who;
    for (std::size_t i = 0; i < std::min(ranks.size(), kMostNamed); ++i) {
      who += (i == 0 ? "" : ", ") + describe_suspect(ranks[i]);
    }
    if (ranks.size() > kMostNamed) who += fmt::format(", and {} more", ranks.size() - kMostNamed);
    add(Finding::Kind::kConclusion, ranks, "look at " + who);
  }

  [[nodiscard]] std::string describe_suspect(int rank) const {
    const auto found = members_.find(rank);
    if (const auto silent = silent_.find(rank); silent != silent_.end()) return silent->second;
    if (found == members_.end()) return fmt::format("rank {}, which was not found here", rank);
    std::string text = one(rank, found->second);
    for (const SeenRank& other : found->second.process->ranks) {
      if (other.communicator == result_.id || !other.inside || found->second.process->ended) continue;
      return text + fmt::format(", which is inside communicator {:016x}", other.communicator);
    }
    return text;
  }

  const Members& members_;
  const SilentRanks silent_;
  const std::int64_t after_ms_;
  CommunicatorFindings& result_;
  std::set<int> suspects_;
};

}  // namespace

std::string describe(const SeenCall& call) {
  return executor::describe(fingerprint_of(call));
}

std::vector<CommunicatorFindings> diagnose(const std::vector<SeenProcess>& processes, std::int64_t after_ms,
                                           const std::map<std::uint64_t, SilentRanks>& silent) {
  // Communicators of one rank are known only to their process.
  std::map<std::pair<std::uint64_t, int>, Members> by_id;
  for (const SeenProcess& process : processes) {
    for (const SeenRank& seen : process.ranks) {
      by_id[{seen.communicator, seen.ranks == 1 ? process.pid : 0}][seen.rank] = {&process, &seen};
    }
  }
  std::vector<CommunicatorFindings> all;
  for (const auto& [id, members] : by_id) {
    CommunicatorFindings findings;
    findings.id = id.first;
    findings.ranks = members.begin()->second.seen->ranks;
    findings.pid = id.second;
    const auto unheard = silent.find(id.first);
    Examination(members, unheard == silent.end() ? SilentRanks() : unheard->second, after_ms, &findings).run();
    all.push_back(std::move(findings));
  }
  std::stable_sort(all.begin(), all.end(), [](const CommunicatorFindings& a, const CommunicatorFindings& b) {
    return std::tuple(a.stuck, a.failed, a.ranks) > std::tuple(b.stuck, b.failed, b.ranks);
  });
  return all;
}

}  // namespace tutti::internal::monitor
