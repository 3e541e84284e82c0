#include "tools/trace/alignment.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <iterator>
#include <set>
#include <utility>

namespace tutti::internal::tools {
namespace {

using observe::TracedOperation;
using observe::TracedProcess;

// Of two hosts: limits of (time to add on the second) - (time to add on the first).
struct Bounds {
  std::int64_t least = -kNever;
  std::int64_t most = kNever;
};
using HostPair = std::pair<std::string, std::string>;  // in rising order

class Alignment {
 public:
  explicit Alignment(const std::vector<TracedProcess>& processes) {
    for (const TracedProcess& process : processes)
      real_.emplace(process.machine, Real{process.host, process.realtime_offset_ns});
    for (const auto& [key, members] : communicators_of(processes, {})) {
      note_collectives(members);
      for_each_message(members, [this](const TracedOperation& send, const Member& from, const TracedOperation& receive,
                                       const Member& to) {
        note(from.process->machine, send.begun_ns, to.process->machine, receive.ended_ns);
      });
    }
  }

  std::map<std::string, HostShift> result() const {
    std::map<std::string, HostShift> shifts;
    if (real_.empty()) return shifts;
    const std::int64_t base = real_.begin()->second.offset_ns;
    for (const auto& [host, real] : real_) {
      if (shifts.count(host) != 0) continue;
      // This host's own clock, relative to the first one's; then all that operations connect with it.
      shifts[host] = {real.host, real.offset_ns - base, host == real_.begin()->first ? 0 : -1};
      std::deque<std::string> known{host};
      for (; !known.empty(); known.pop_front()) follow(known.front(), &shifts, &known);
    }
    return shifts;
  }

 private:
  // What begins on one host comes before what ends on the other.
  void note(const std::string& first_host, std::int64_t begun, const std::string& then_host, std::int64_t ended) {
    if (first_host == then_host) return;
    // begun + shift(first) <= ended + shift(then)
    Bounds& bounds = bounds_[std::minmax(first_host, then_host)];
    if (first_host < then_host) {
      bounds.least = std::max(bounds.least, begun - ended);
    } else {
      bounds.most = std::min(bounds.most, ended - begun);
    }
  }

  void note_collectives(const Members& members) {
    struct Edge {
      std::int64_t last_begin = -kNever;
      std::int64_t first_end = kNever;
    };
    std::set<std::string> hosts;
    for (const auto& [rank, member] : members) hosts.insert(member.process->machine);
    if (hosts.size() < 2) return;
    std::map<std::uint32_t, std::map<std::string, Edge>> edges;  // by operation and host
    for (const auto& [rank, member] : members) {
      for (const TracedOperation& operation : member.rank->operations) {
        if (!joins_all(operation)) continue;
        Edge& edge = edges[operation.number][member.process->machine];
        edge.last_begin = std::max(edge.last_begin, operation.begun_ns);
        edge.first_end = std::min(edge.first_end, operation.ended_ns);
      }
    }
    for (const auto& [number, of_hosts] : edges) {
      const auto& [first, own] = *of_hosts.begin();
      for (auto other = std::next(of_hosts.begin()); other != of_hosts.end(); ++other) {
        note(first, own.last_begin, other->first, other->second.first_end);
        note(other->first, other->second.last_begin, first, own.first_end);
      }
    }
  }

  void follow(const std::string& host, std::map<std::string, HostShift>* shifts, std::deque<std::string>* known) const {
    const HostShift from = shifts->at(host);
    for (const auto& [pair, bounds] : bounds_) {
      if (pair.first != host && pair.second != host) continue;
      const std::string& other = pair.first == host ? pair.second : pair.first;
      if (shifts->count(other) != 0) continue;
      const bool forward = pair.first == host;
      const std::int64_t least = forward ? bounds.least : -bounds.most;
      const std::int64_t most = forward ? bounds.most : -bounds.least;
      const std::int64_t real = real_.at(other).offset_ns - real_.at(host).offset_ns;
      HostShift shift;
      shift.host = real_.at(other).host;
      if (least > -kNever && most < kNever) {
        shift.ns = from.ns + least + (most - least) / 2;
        // If they contradict each other, the clocks do not run equally fast.
        shift.uncertain_ns = from.uncertain_ns < 0 ? -1 : from.uncertain_ns + std::abs(most - least) / 2;
      } else {
        shift.ns = from.ns + std::clamp(real, least, std::max(least, most));
        shift.uncertain_ns = -1;
      }
      shifts->emplace(other, shift);
      known->push_back(other);
    }
  }

  struct Real {
    std::string host;
    std::int64_t offset_ns = 0;
  };
  std::map<std::string, Real> real_;  // by machine
  std::map<HostPair, Bounds> bounds_;
};

}  // namespace

std::map<std::string, HostShift> align(const std::vector<TracedProcess>& processes) {
  return Alignment(processes).result();
}

}  // namespace tutti::internal::tools
