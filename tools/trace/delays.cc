#include "tools/trace/delays.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "base/collectives.h"
#include "executor/fingerprint.h"
#include "tools/trace/alignment.h"
#include "tools/trace/members.h"
#include "tools/trace/predictions.h"
#include "tools/trace/ran_steps.h"

namespace tutti::internal::tools {
namespace {

using observe::TracedOperation;
using observe::TracedProcess;
using observe::TracedSteps;
using observe::TraceRecord;

// A rank is late if it comes last in this part of the collectives, each time by kLateNs and by this part of the time
// that the collective takes once all ranks are there. As tutti diagnose.
constexpr double kMostlyLast = 0.75;
constexpr double kLatePart = 0.5;
constexpr std::size_t kFewest = 8;
// A link is slow in a collective if its messages took kSlowFactor times as long as predicted and as the others, longer
// by this time and by this part of the collective. It is named if that is so in most of the collectives of one kind and
// size.
constexpr double kSlowFactor = 4;
constexpr double kSlowUs = 200;
constexpr double kSlowPart = 0.2;
constexpr double kMostlySlow = 0.8;
constexpr std::size_t kFewestSlow = 3;

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

std::string text_of_size(std::uint64_t bytes) {
  constexpr std::uint64_t kMib = std::uint64_t{1} << 20;
  if (bytes >= kMib && bytes % kMib == 0) return fmt::format("{} MiB", bytes / kMib);
  if (bytes >= 1024 && bytes % 1024 == 0) return fmt::format("{} KiB", bytes / 1024);
  return fmt::format("{} bytes", bytes);
}

// Collectives of one kind and size.
using Kind = std::tuple<int, std::uint32_t, std::uint64_t>;  // collective, plan, bytes

struct LinkOfKind {
  std::vector<double> ran_us;
  std::vector<double> predicted_us;
  std::size_t slow = 0;
};
struct OfKind {
  std::string name;
  std::map<std::pair<int, int>, LinkOfKind> links;
};

class Finder {
 public:
  Finder(const Members& members, double uncertain_us, std::optional<std::uint32_t> number)
      : members_(members), uncertain_us_(uncertain_us), number_(number), predictions_(members) {}

  Delays run() {
    const observe::TracedRank& any = *members_.begin()->second.rank;
    found_.communicator = any.communicator;
    found_.ranks = any.ranks;
    found_.places.resize(static_cast<std::size_t>(any.ranks), "of which there is no trace");
    for (const auto& [rank, member] : members_) {
      found_.places[static_cast<std::size_t>(rank)] =
          fmt::format("pid {} on {}", member.process->pid, member.process->host);
    }
    if (members_.size() == static_cast<std::size_t>(any.ranks)) {
      find_late();
      compare_all();
      find_slow();
    } else {
      found_.uncompared = fmt::format("there are traces of {} of its ranks only", members_.size());
    }
    return std::move(found_);
  }

 private:
  [[nodiscard]] bool wanted(const TracedOperation& operation) const {
    return operation.kind == TraceRecord::kCollective && (!number_ || operation.number == *number_);
  }

  void find_late() {
    const std::map<std::uint32_t, Arrival> arrivals = arrivals_of(members_);
    std::map<int, std::vector<double>> late;
    std::vector<double> lengths;  // once all ranks are there
    std::size_t joined = 0;
    for (const TracedOperation& operation : members_.begin()->second.rank->operations) {
      if (!wanted(operation)) continue;
      ++found_.collectives;
      const Arrival& arrival = arrivals.at(operation.number);
      if (!joins_all(operation) || arrival.ranks != found_.ranks) continue;
      ++joined;
      late[arrival.last_rank].push_back(static_cast<double>(arrival.last_ns - arrival.before_ns) / 1000);
      const std::int64_t ended = operation.ended_ns + members_.begin()->second.shift_ns;
      lengths.push_back(static_cast<double>(ended - arrival.last_ns) / 1000);
    }
    if (joined < (number_ ? 1 : kFewest)) return;
    found_.compared_begins = true;
    for (const auto& [rank, delays] : late) {
      const double late_us = median(delays);
      if (static_cast<double>(delays.size()) < kMostlyLast * static_cast<double>(joined)) continue;
      if (late_us < std::max({static_cast<double>(kLateNs) / 1000, kLatePart * median(lengths), 2 * uncertain_us_}))
        continue;
      found_.late.push_back({rank, delays.size(), joined, late_us});
    }
  }

  // Each collective whose steps all ranks have kept.
  void compare_all() {
    std::map<std::uint32_t, std::vector<RankPart>> parts;  // by number
    for (const auto& [rank, member] : members_) {
      std::map<std::uint32_t, const TracedSteps*> steps;
      for (const TracedSteps& one : member.rank->steps) steps[one.number] = &one;
      for (const TracedOperation& operation : member.rank->operations) {
        if (!wanted(operation)) continue;
        const auto own = steps.find(operation.number);
        if (own != steps.end()) parts[operation.number].push_back({&operation, own->second, member.shift_ns});
      }
    }
    for (const auto& [number, of_ranks] : parts) {
      if (of_ranks.size() == members_.size()) compare(of_ranks);
    }
    found_.factor = median(factors_);
    if (!parts.empty() && found_.uncompared.empty()) found_.uncompared = predictions_.why();
  }

  void compare(const std::vector<RankPart>& parts) {
    const RankPart& first = parts.front();
    const Predicted* const predicted = predictions_.of(*first.operation, *members_.begin()->second.rank, *first.steps);
    if (predicted == nullptr) return;
    const auto links = link_times(parts, *predicted);
    if (!links) {
      found_.uncompared = "the steps are not those of this program's schedules";
      return;
    }
    std::int64_t begun = -kNever;
    std::int64_t ended = -kNever;
    for (const RankPart& part : parts) {
      begun = std::max(begun, part.operation->begun_ns + part.shift_ns);
      ended = std::max(ended, part.operation->ended_ns + part.shift_ns);
    }
    const double took_us = static_cast<double>(ended - begun) / 1000;
    ++found_.compared;
    factors_.push_back(took_us / std::max(predicted->timing.total_us, 1e-3));
    note(first, *predicted, *links, took_us);
  }

  void note(const RankPart& part, const Predicted& predicted, const Links& links, double took_us) {
    const Collective collective = executor::collective_of(part.operation->call);
    OfKind& kind = kinds_[{static_cast<int>(collective), part.steps->plan, part.steps->bytes}];
    if (kind.name.empty()) {
      kind.name =
          fmt::format("{} of {} by {}", name_of(collective), text_of_size(part.steps->bytes), predicted.algorithm);
    }
    std::vector<double> factors;
    for (const auto& [link, times] : links) {
      if (times.predicted_us > 0) factors.push_back(times.ran_us / times.predicted_us);
    }
    const double usual = std::max(1.0, median(factors));
    for (const auto& [link, times] : links) {
      LinkOfKind& own = kind.links[link];
      own.ran_us.push_back(times.ran_us);
      own.predicted_us.push_back(times.predicted_us);
      const double expected = usual * times.predicted_us;
      const double least = std::max({kSlowUs, kSlowPart * took_us, 2 * uncertain_us_});
      if (times.ran_us > kSlowFactor * expected && times.ran_us - expected > least) ++own.slow;
    }
  }

  void find_slow() {
    std::map<std::pair<int, int>, SlowLink> slow;
    std::set<std::pair<int, int>> all;
    for (const auto& [key, kind] : kinds_) {
      for (const auto& [link, times] : kind.links) {
        all.insert(link);
        const std::size_t collectives = times.ran_us.size();
        if (times.slow < (number_ ? 1 : kFewestSlow)) continue;
        if (static_cast<double>(times.slow) < kMostlySlow * static_cast<double>(collectives)) continue;
        SlowLink& found = slow[link];
        found.from = link.first;
        found.to = link.second;
        found.slow += times.slow;
        found.collectives += collectives;
        const double ran_us = median(times.ran_us);
        if (ran_us <= found.ran_us) continue;
        found.ran_us = ran_us;
        found.predicted_us = median(times.predicted_us);
        found.example = kind.name;
      }
    }
    if (const auto rank = common_rank(slow, all)) {
      found_.slow_ranks.push_back(*rank);
      return;
    }
    for (auto& [link, found] : slow) found_.slow_links.push_back(std::move(found));
    std::stable_sort(found_.slow_links.begin(), found_.slow_links.end(), [](const SlowLink& a, const SlowLink& b) {
      return a.ran_us - a.predicted_us > b.ran_us - b.predicted_us;
    });
  }

  // The rank all of whose links are slow, if no others are, and it has not only one in each direction with one rank.
  [[nodiscard]] std::optional<SlowRank> common_rank(const std::map<std::pair<int, int>, SlowLink>& slow,
                                                    const std::set<std::pair<int, int>>& all) const {
    for (const auto& [rank, member] : members_) {
      SlowRank found;
      found.rank = rank;
      std::vector<double> factors;
      std::set<int> peers;
      bool fits = true;
      for (const auto& link : all) {
        const bool touches = link.first == rank || link.second == rank;
        const auto one = slow.find(link);
        if (touches != (one != slow.end())) fits = false;
        if (!touches || one == slow.end()) continue;
        ++found.links;
        peers.insert(link.first == rank ? link.second : link.first);
        found.slow = std::max(found.slow, one->second.slow);
        found.collectives = std::max(found.collectives, one->second.collectives);
        factors.push_back(one->second.ran_us / std::max(one->second.predicted_us, 1e-3));
      }
      if (!fits || peers.size() < 2) continue;
      found.factor = median(factors);
      return found;
    }
    return std::nullopt;
  }

  const Members& members_;
  const double uncertain_us_;
  const std::optional<std::uint32_t> number_;
  Predictions predictions_;
  Delays found_;
  std::vector<double> factors_;
  std::map<Kind, OfKind> kinds_;
};

}  // namespace

std::vector<Delays> find_delays(const std::vector<TracedProcess>& processes, std::optional<std::uint32_t> number) {
  const std::map<std::string, HostShift> shifts = align(processes);
  std::vector<Delays> all;
  for (const auto& [key, members] : communicators_of(processes, shifts)) {
    if (members.begin()->second.rank->ranks < 2) continue;
    double uncertain_us = 0;
    for (const auto& [rank, member] : members) {
      const auto shift = shifts.find(member.process->machine);
      // Negative: the clocks are not compared, only read.
      const std::int64_t ns = shift == shifts.end() ? 0 : shift->second.uncertain_ns;
      uncertain_us = std::max(uncertain_us, ns < 0 ? 1e9 : static_cast<double>(ns) / 1000);
    }
    all.push_back(Finder(members, uncertain_us, number).run());
  }
  std::stable_sort(all.begin(), all.end(), [](const Delays& a, const Delays& b) { return a.ranks > b.ranks; });
  return all;
}

}  // namespace tutti::internal::tools
