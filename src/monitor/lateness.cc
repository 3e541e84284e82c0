#include "monitor/lateness.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <optional>
#include <utility>

namespace tutti::internal::monitor {
namespace {

using observe::Outside;
using observe::SeenCall;

// By Cause, in nanoseconds.
using Parts = std::array<double, 6>;

Parts parts_of(const std::optional<Outside>& before) {
  Parts parts{};
  if (!before) return parts;
  const double all = before->us;
  const double run = before->run_us;
  const double delay = before->delay_us;
  const double rest = std::max(0.0, all - run - delay);
  // Waits in collectives are mostly sleeps.
  const double elsewhere = std::min<double>(before->elsewhere_us, all);
  const double awake_elsewhere = std::max(0.0, elsewhere - rest);
  parts[static_cast<std::size_t>(Cause::kComputes)] = 1e3 * std::max(0.0, run - awake_elsewhere);
  parts[static_cast<std::size_t>(Cause::kProcessor)] = 1e3 * delay;
  parts[static_cast<std::size_t>(Cause::kSleeps)] = 1e3 * std::max(0.0, rest - elsewhere);
  parts[static_cast<std::size_t>(Cause::kElsewhere)] = 1e3 * elsewhere;
  return parts;
}

struct Arrival {
  std::int64_t ns = 0;
  int rank = 0;
  const SeenCall* call = nullptr;
  std::int64_t left_ns = 0;  // when it left the collective before; 0: not known
};

struct Late {
  LateRank rank;
  Parts own{};
  Parts others{};  // their means
};

// What the last one did, and what the others did.
void compare(const std::vector<Arrival>& arrivals, Late* late) {
  const Arrival& last = arrivals.back();
  const Arrival& before = arrivals[arrivals.size() - 2];
  const std::int64_t late_ns = last.ns - before.ns;
  // It was outside for hardly longer than the others.
  if (last.left_ns != 0 && before.left_ns != 0 &&
      2 * (last.ns - last.left_ns - (before.ns - before.left_ns)) < late_ns) {
    late->rank.kept_ns += late_ns;
    return;
  }
  if (!last.call->before) return;
  late->rank.known_ns += late_ns;
  const auto count = static_cast<double>(arrivals.size() - 1);
  const auto add = [](const Arrival& arrival, double share, Parts* sum) {
    const Parts parts = parts_of(arrival.call->before);
    for (std::size_t part = 0; part < parts.size(); ++part) (*sum)[part] += parts[part] * share;
  };
  add(last, 1, &late->own);
  for (std::size_t i = 0; i + 1 < arrivals.size(); ++i) add(arrivals[i], 1 / count, &late->others);
}

Cause cause_of(const Late& late) {
  // Otherwise the notes are about a small part of the lateness, or explain little of it.
  constexpr double kLeastShare = 0.25;
  if (late.rank.known_ns * 2 < late.rank.late_ns) return Cause::kUnknown;
  Parts more{};
  for (std::size_t part = 0; part < more.size(); ++part) more[part] = late.own[part] - late.others[part];
  // On a busy machine each rank waits for a processor in proportion to the time that it runs: then longer waits are due
  // to the work.
  constexpr auto kRun = static_cast<std::size_t>(Cause::kComputes);
  constexpr auto kDelay = static_cast<std::size_t>(Cause::kProcessor);
  const double usual = late.others[kRun] > 0 ? late.others[kDelay] / late.others[kRun] : 0;
  more[kRun] *= 1 + usual;
  more[kDelay] = late.own[kDelay] - usual * late.own[kRun];
  const auto most = std::max_element(more.begin(), more.end());
  if (*most < kLeastShare * static_cast<double>(late.rank.known_ns)) return Cause::kUnknown;
  return static_cast<Cause>(most - more.begin());
}

std::vector<SlowLink> slow_links_of(const Members& members) {
  struct Link {
    SlowLink slow;
    std::int64_t inside_ns = 0;
  };
  std::map<std::pair<int, int>, Link> links;
  for (const auto& [to, member] : members) {
    std::int64_t inside_ns = 0;
    int ended = 0;
    for (const SeenCall& call : member.seen->calls) {
      if (!call.begun_ns || !call.ended_ns) continue;
      ++ended;
      inside_ns += *call.ended_ns - *call.begun_ns;
      const auto from = members.find(call.data.peer);
      if (from == members.end()) continue;
      const std::vector<SeenCall>& sent = from->second.seen->calls;
      const auto same =
          std::find_if(sent.begin(), sent.end(), [&](const SeenCall& other) { return other.number == call.number; });
      if (same == sent.end()) continue;
      std::int64_t held_ns = same->room.peer == to ? std::int64_t{1000} * same->room.us : 0;
      // After the sender's end, all its bytes are on the way.
      const bool here = from->second.process->host == member.process->host;
      if (here && same->ended_ns) held_ns += std::max<std::int64_t>(0, *call.ended_ns - *same->ended_ns);
      held_ns = std::min(held_ns, *call.ended_ns - *call.begun_ns) - std::int64_t{1000} * call.delay_us;
      if (held_ns <= 0) continue;
      SlowLink& slow = links[{call.data.peer, to}].slow;
      ++slow.times;
      slow.ns += held_ns;
    }
    for (auto& [ends, link] : links) {
      if (ends.second == to && ended >= kLeastCompared / 2) link.inside_ns = inside_ns;
    }
  }
  std::vector<SlowLink> slow;
  for (auto& [ends, link] : links) {
    link.slow.from = ends.first;
    link.slow.to = ends.second;
    if (link.inside_ns > 0 && 2 * link.slow.ns >= link.inside_ns) slow.push_back(link.slow);
  }
  return slow;
}

}  // namespace

const char* name_of(Cause cause) {
  switch (cause) {
    case Cause::kUnknown: return "unknown";
    case Cause::kComputes: return "computes";
    case Cause::kProcessor: return "processor";
    case Cause::kSleeps: return "sleeps";
    case Cause::kElsewhere: return "elsewhere";
    case Cause::kLink: return "link";
  }
  return "";
}

const char* describe(Cause cause) {
  switch (cause) {
    case Cause::kUnknown: return "";
    case Cause::kComputes: return "it computes longer";
    case Cause::kProcessor: return "it waits for its processor, which others use as well";
    case Cause::kSleeps: return "it sleeps, or waits for something outside of tutti";
    case Cause::kElsewhere: return "it is held up in another communicator";
    case Cause::kLink: return "bytes come to it over a slow link";
  }
  return "";
}

Cause main_cause(const Outside& outside) {
  const Parts parts = parts_of(outside);
  const auto most = std::max_element(parts.begin(), parts.end());
  return *most * 2 < 1e3 * outside.us ? Cause::kUnknown : static_cast<Cause>(most - parts.begin());
}

std::string describe_now(Cause cause, const std::string& who) {
  switch (cause) {
    case Cause::kComputes: return who + " computes";
    case Cause::kProcessor: return who + " waits for its processor, which others use as well";
    case Cause::kSleeps: return who + " sleeps, or waits for something outside of tutti";
    case Cause::kElsewhere: return who + " is held up in another communicator";
    case Cause::kLink:
    case Cause::kUnknown: break;
  }
  return "";
}

Lateness lateness_of(const Members& members) {
  Lateness result;
  result.links = slow_links_of(members);
  std::map<std::uint32_t, std::vector<Arrival>> begun;  // by operation
  for (const auto& [rank, member] : members) {
    if (member.process->host != members.begin()->second.process->host) return result;
    const SeenCall* before = nullptr;
    for (const SeenCall& call : member.seen->calls) {
      if (call.begun_ns) {
        const bool follows = before != nullptr && before->number + 1 == call.number && before->begun_ns;
        const std::int64_t left_ns = follows ? before->ended_ns.value_or(*before->begun_ns) : 0;
        begun[call.number].push_back({*call.begun_ns, rank, &call, left_ns});
      }
      before = &call;
    }
  }
  std::map<int, Late> by_rank;
  for (auto& [number, arrivals] : begun) {
    if (arrivals.size() < 2 || arrivals.size() != members.size()) continue;
    std::sort(arrivals.begin(), arrivals.end(),
              [](const Arrival& a, const Arrival& b) { return a.ns != b.ns ? a.ns < b.ns : a.rank < b.rank; });
    ++result.compared;
    result.spread_ns += arrivals.back().ns - arrivals.front().ns;
    Late& late = by_rank[arrivals.back().rank];
    late.rank.rank = arrivals.back().rank;
    ++late.rank.last;
    late.rank.late_ns += arrivals.back().ns - arrivals[arrivals.size() - 2].ns;
    compare(arrivals, &late);
  }
  for (auto& [rank, late] : by_rank) {
    late.rank.cause = cause_of(late);
    const bool kept = 2 * late.rank.kept_ns > late.rank.late_ns;
    const bool slow = std::any_of(result.links.begin(), result.links.end(),
                                  [rank = rank](const SlowLink& link) { return link.to == rank; });
    if (kept) late.rank.cause = slow ? Cause::kLink : Cause::kUnknown;
    result.ranks.push_back(late.rank);
  }
  return result;
}

bool is_late(const LateRank& rank, const Lateness& all) {
  return all.compared >= kLeastCompared && 4 * rank.last >= 3 * all.compared && rank.late_ns >= kLateNs * rank.last;
}

}  // namespace tutti::internal::monitor
