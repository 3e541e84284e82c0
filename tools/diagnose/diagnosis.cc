#include "diagnosis.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "base/rank_list.h"
#include "control/call_record.h"
#include "executor/fingerprint.h"

namespace tutti::internal::tools {
namespace {

using observe::SeenCall;
using observe::SeenProcess;
using observe::SeenRank;

struct Member {
  const SeenProcess* process = nullptr;
  const SeenRank* seen = nullptr;

  [[nodiscard]] bool stopped() const { return process->state == 'T' || process->state == 't'; }
  // Null: it has called no collective.
  [[nodiscard]] const SeenCall* last() const { return seen->calls.empty() ? nullptr : &seen->calls.back(); }
  [[nodiscard]] std::int64_t ms_since(std::int64_t ns) const {
    return std::max<std::int64_t>(0, (process->read_ns - ns) / 1'000'000);
  }
  [[nodiscard]] std::int64_t waited_ms() const {
    if (!seen->wait) return 0;
    return seen->wait->ms + ms_since(seen->wait->seen_ns);
  }
};
using Members = std::map<int, Member>;  // by rank

transport::Fingerprint fingerprint_of(const SeenCall& call) {
  transport::Fingerprint fingerprint{call.number, call.call, call.root, 0, 0};
  executor::set_count(&fingerprint, call.count);
  return executor::without_history(executor::without_plan(fingerprint));
}

std::string describe(const SeenCall& call) {
  const std::string text = executor::describe(fingerprint_of(call));
  return call.plan.empty() ? text : text + " " + call.plan;
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

// What the findings of one communicator are made of.
class Examination {
 public:
  Examination(const Members& members, CommunicatorFindings* result) : members_(members), result_(*result) {}

  void run() {
    tell_failures();
    tell_stopped();
    tell_differences();
    tell_operations();
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

  void tell_failures() {
    for (const auto& [rank, member] : members_) {
      if (member.seen->failure.empty()) continue;
      result_.stuck = true;
      add(Finding::Kind::kFailed, {rank}, fmt::format("it has failed on rank {}: {}", rank, member.seen->failure));
    }
  }

  void tell_stopped() {
    for (const auto& [rank, member] : members_) {
      if (!member.stopped()) continue;
      result_.stuck = true;
      suspects_.insert(rank);
      add(Finding::Kind::kStopped, {rank},
          fmt::format("the process of {} is stopped; kill -CONT {} continues it", one(rank, member),
                      member.process->pid));
    }
  }

  // The first number at which ranks have called different operations, among those that are kept.
  void tell_differences() {
    std::map<std::uint32_t, std::map<int, const SeenCall*>> by_number;
    for (const auto& [rank, member] : members_) {
      for (const SeenCall& call : member.seen->calls) by_number[call.number][rank] = &call;
    }
    for (const auto& [number, calls] : by_number) {
      const SeenCall& first = *calls.begin()->second;
      for (const auto& [rank, call] : calls) {
        if (executor::same_call(fingerprint_of(*call), fingerprint_of(first))) continue;
        result_.stuck = true;
        add(Finding::Kind::kDiffers, {calls.begin()->first, rank},
            fmt::format("rank {} has called {}, and rank {} {}", calls.begin()->first, describe(first), rank,
                        describe(*call)));
        return;
      }
    }
  }

  void tell_operations() {
    std::optional<std::uint32_t> front;
    for (const auto& [rank, member] : members_) {
      if (!front || is_before(*front, member.seen->number)) front = member.seen->number;
    }
    std::vector<int> inside;
    std::vector<int> outside;
    std::vector<int> behind;
    for (const auto& [rank, member] : members_) {
      if (member.seen->transfer) {
        tell_transfer(rank, member);
      } else if (member.seen->number != *front) {
        behind.push_back(rank);
      } else {
        (member.seen->inside ? inside : outside).push_back(rank);
      }
    }
    if (!inside.empty()) {
      tell_operation(inside);
    } else if (*front == 0) {
      if (!outside.empty())
        add(Finding::Kind::kOperation, outside,
            fmt::format("{} {} called no collective", list_ranks(outside), have(outside)));
    } else if (!outside.empty()) {
      const Member& member = members_.at(outside.front());
      const SeenCall* const last = member.last();
      add(Finding::Kind::kOperation, outside,
          fmt::format("{} {} not in a collective; the last{}{}", list_ranks(outside), are(outside),
                      last == nullptr ? "" : ", " + describe(*last) + ",",
                      last == nullptr ? "" : ended(member, *last)));
    }
    if (!inside.empty() && !outside.empty()) {
      add(Finding::Kind::kOperation, outside, fmt::format("{} {} completed it", list_ranks(outside), have(outside)));
    }
    for (const int rank : behind) tell_behind(rank, *front, !inside.empty());
  }

  void tell_operation(const std::vector<int>& ranks) {
    std::int64_t ms = 0;
    const SeenCall* call = nullptr;
    for (const int rank : ranks) {
      const Member& member = members_.at(rank);
      if (member.last() == nullptr) continue;
      call = member.last();
      ms = std::max(ms, member.ms_since(call->begun_ns));
    }
    if (call == nullptr) return;
    add(Finding::Kind::kOperation, ranks,
        fmt::format("{} {} been in {}, for {}", list_ranks(ranks), have(ranks), describe(*call), describe_time(ms)));
  }

  void tell_transfer(int rank, const Member& member) {
    const SeenRank::Transfer& transfer = *member.seen->transfer;
    add(Finding::Kind::kOperation, {rank},
        fmt::format("rank {} is in a {} of {} bytes {} rank {}", rank, transfer.sends ? "send" : "receive",
                    transfer.bytes, transfer.sends ? "to" : "from", transfer.peer));
  }

  void tell_behind(int rank, std::uint32_t front, bool awaited) {
    const Member& member = members_.at(rank);
    const SeenCall* const last = member.last();
    if (awaited) suspects_.insert(rank);
    std::string where = "; it has called no collective";
    if (last != nullptr && member.seen->inside) {
      where =
          fmt::format("; it has been in {} for {}", describe(*last), describe_time(member.ms_since(last->begun_ns)));
    } else if (last != nullptr) {
      where = fmt::format("; its last, {},{}", describe(*last), ended(member, *last));
    }
    add(Finding::Kind::kBehind, {rank}, fmt::format("rank {} has not called operation {}{}", rank, front, where));
  }

  static std::string ended(const Member& member, const SeenCall& call) {
    const bool known = call.ended_ns.has_value();
    return fmt::format(" {} {} ago", known ? "ended" : "began",
                       describe_time(member.ms_since(known ? *call.ended_ns : call.begun_ns)));
  }

  void tell_waits() {
    std::map<std::vector<int>, std::vector<int>> waiting;  // by the awaited ranks
    for (const auto& [rank, member] : members_) {
      if (!member.seen->wait) continue;
      std::vector<int> awaited = member.seen->wait->ranks;
      std::sort(awaited.begin(), awaited.end());
      awaited.erase(std::unique(awaited.begin(), awaited.end()), awaited.end());
      waiting[awaited].push_back(rank);
      if (member.waited_ms() >= kStuckMs) result_.stuck = true;
    }
    for (const auto& [awaited, ranks] : waiting) {
      std::int64_t ms = 0;
      for (const int rank : ranks) ms = std::max(ms, members_.at(rank).waited_ms());
      add(Finding::Kind::kWaits, ranks,
          fmt::format("{} {} waited {} for {}", list_ranks(ranks), have(ranks), describe_time(ms),
                      awaited.empty() ? "a rank that is not known" : list_ranks(awaited)));
    }
  }

  // Of ranks of one host: clocks of several hosts differ.
  void tell_late() {
    struct Comings {
      int last = 0;
      std::int64_t awaited_ns = 0;
    };
    std::map<std::uint32_t, std::vector<std::pair<std::int64_t, int>>> begun;  // (time, rank) by operation
    for (const auto& [rank, member] : members_) {
      if (member.process->host != members_.begin()->second.process->host) return;
      for (const SeenCall& call : member.seen->calls) begun[call.number].emplace_back(call.begun_ns, rank);
    }
    std::map<int, Comings> by_rank;
    int compared = 0;
    for (auto& [number, times] : begun) {
      if (times.size() < 2 || times.size() != members_.size()) continue;
      ++compared;
      std::sort(times.begin(), times.end());
      Comings& comings = by_rank[times.back().second];
      ++comings.last;
      comings.awaited_ns += times.back().first - times[times.size() - 2].first;
    }
    if (compared < kLeastCompared) return;
    for (const auto& [rank, comings] : by_rank) {
      const std::int64_t mean_ns = comings.awaited_ns / comings.last;
      if (2 * comings.last < compared || mean_ns < kLateNs) continue;
      add(Finding::Kind::kLate, {rank},
          fmt::format(
              "{} began {} of the last {} operations after all others; these waited for it, {}.{} ms on average",
              one(rank, members_.at(rank)), comings.last, compared, mean_ns / 1'000'000, mean_ns / 100'000 % 10));
    }
  }

  void tell_unread() {
    std::vector<int> unread;
    for (int rank = 0; rank < result_.ranks; ++rank) {
      if (members_.find(rank) == members_.end()) unread.push_back(rank);
    }
    if (unread.empty()) return;
    add(Finding::Kind::kUnread, unread,
        fmt::format("{} {} in no process that was read: on another host, of another user, or dead", list_ranks(unread),
                    are(unread)));
  }

  // Those for whom others wait, and who wait for none themselves; if there is none, the ranks that wait in a circle.
  void conclude() {
    if (!result_.stuck) return;
    std::set<int> awaited;
    for (const auto& [rank, member] : members_) {
      if (!member.seen->wait) continue;
      for (const int other : member.seen->wait->ranks) awaited.insert(other);
    }
    if (suspects_.empty()) {
      for (const int rank : awaited) {
        const auto found = members_.find(rank);
        if (found == members_.end() || !found->second.seen->wait) suspects_.insert(rank);
      }
    }
    if (suspects_.empty() && awaited.empty()) return;
    std::string who;
    const std::vector<int> ranks(suspects_.begin(), suspects_.end());
    for (const int rank : ranks) {
      const auto found = members_.find(rank);
      who += (who.empty() ? "" : ", ") +
             (found == members_.end() ? fmt::format("rank {}", rank) : one(rank, found->second));
      if (who.size() > 200) break;
    }
    if (ranks.empty()) {
      const std::vector<int> circle(awaited.begin(), awaited.end());
      add(Finding::Kind::kConclusion, circle, list_ranks(circle) + " wait for each other");
    } else {
      add(Finding::Kind::kConclusion, ranks, "look at " + who);
    }
  }

  const Members& members_;
  CommunicatorFindings& result_;
  std::set<int> suspects_;
};

}  // namespace

std::string describe_time(std::int64_t ms) {
  if (ms < 1000) return fmt::format("{} ms", ms);
  if (ms < 120'000) return fmt::format("{}.{} s", ms / 1000, ms % 1000 / 100);
  if (ms < 7'200'000) return fmt::format("{} min", ms / 60'000);
  return fmt::format("{} h", ms / 3'600'000);
}

std::vector<CommunicatorFindings> diagnose(const std::vector<SeenProcess>& processes) {
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
    Examination(members, &findings).run();
    all.push_back(std::move(findings));
  }
  std::stable_sort(all.begin(), all.end(), [](const CommunicatorFindings& a, const CommunicatorFindings& b) {
    return a.stuck != b.stuck ? a.stuck : a.ranks > b.ranks;
  });
  return all;
}

}  // namespace tutti::internal::tools
