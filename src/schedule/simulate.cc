#include "schedule/simulate.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <queue>
#include <unordered_map>

namespace tutti::internal::schedule {
namespace {

constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();
constexpr const char* kUnlike = "the ranks that it stands for do not do the same";
constexpr std::uint64_t kEventsBetweenInterrupts = 1 << 16;

// The next event of a step.
enum class Stage : std::uint8_t {
  kStart,   // for a send: the sender's processor begins; for all others the whole step
  kInject,  // for a send: its bytes reach the first resource
};

struct Event {
  double time_us = 0;
  std::uint64_t number = 0;  // at equal times, the event that was found first
  std::uint32_t step = 0;
  Stage stage = Stage::kStart;
  bool operator>(const Event& o) const { return time_us != o.time_us ? time_us > o.time_us : number > o.number; }
};

// The state of a step. Steps of all ranks have consecutive numbers.
struct State {
  double ready_us = 0;  // its earliest begin, as far as known
  double floor_us = 0;  // the end of its dependencies
  double first_us = 0;  // when its first piece is done; then `end_us` is known, too
  double end_us = 0;
  double arrived_us = 0;        // for a receive: the first piece has arrived
  double arrived_end_us = 0;    // the last one
  std::uint32_t waits = 0;      // steps that it has to wait for and that have not begun
  std::uint32_t sends = 0;      // for a receive: missing messages; for a send: 1 while it waits for its receive
  std::uint32_t match = kNone;  // of a send: the receive of its first chunk
  std::uint32_t last = kNone;   // of a send: the receive of its last chunk
};

// The end of a rank's current call.
struct CallEnd {
  std::uint32_t left = 0;  // steps
  double us = 0;           // the latest end of those that have one
  int calls = 0;           // that have ended
};

// The dependents of each step, in compressed rows.
struct Dependents {
  std::vector<std::uint32_t> first;  // one more than steps
  std::vector<std::uint32_t> steps;
};

class Simulation {
 public:
  Simulation(std::span<const Schedule> schedules, const Layout& layout, const Interconnect& net,
             const SimulationOptions& options)
      : schedules_(schedules),
        layout_(layout),
        net_(net),
        options_(options),
        call_bytes_(options.call_bytes > 0 ? options.call_bytes : bytes_of_all(schedules, layout)) {}

  Result<Timing> run() {
    number_steps();
    find_dependents();
    if (Status s = match_messages(); !s.is_ok()) return s;
    if (options_.keeps_steps) begins_.assign(states_.size(), 0);
    links_.assign(net_.resources(), 0);
    processors_.assign(net_.processors(), 0);
    ranks_.assign(schedules_.size(), 0);
    timing_.calls_us.assign(static_cast<std::size_t>(options_.calls), 0);
    timing_.resource_bytes.assign(net_.resources(), 0);
    timing_.resource_us.assign(net_.resources(), 0);
    timing_.processor_us.assign(net_.processors(), 0);
    timing_.work_us.assign(schedules_.size(), 0);
    ends_.resize(schedules_.size());
    for (std::size_t rank = 0; rank < schedules_.size(); ++rank) {
      const auto steps = static_cast<std::uint32_t>(schedules_[rank].steps.size());
      ends_[rank].left = steps;
      if (steps == 0) continue;
      const double begin = begin_call(rank, 0);
      for (std::uint32_t i = 0; i < steps; ++i) {
        states_[first_step_[rank] + i].ready_us = begin;
        if (states_[first_step_[rank] + i].waits == 0) release(first_step_[rank] + i);
      }
    }
    if (Status s = run_events(); !s.is_ok()) return s;
    if (ended_ != states_.size()) return describe_stuck();
    return finish();
  }

 private:
  [[nodiscard]] int rank_of(std::uint32_t s) const {
    return static_cast<int>(std::upper_bound(first_step_.begin(), first_step_.end(), s) - first_step_.begin()) - 1;
  }
  static double bytes_of_all(std::span<const Schedule> schedules, const Layout& layout) {
    const std::uint32_t chunks = schedules.empty() ? 0 : schedules.front().shape.chunks;
    return chunks == 0 ? 0 : static_cast<double>(layout.bytes({0, chunks}).size);
  }
  // Of all calls.
  [[nodiscard]] std::uint32_t steps_of(std::size_t rank) const {
    return static_cast<std::uint32_t>(schedules_[rank].steps.size()) * static_cast<std::uint32_t>(options_.calls);
  }
  [[nodiscard]] const Step& step(std::uint32_t s) const { return *steps_[s]; }
  [[nodiscard]] double bytes_of(const Step& s) const {
    const ChunkRange range = s.kind == StepKind::kSend ? s.source_range() : s.target_range();
    return range.count == 0 ? 0 : static_cast<double>(layout_.bytes(range).size);
  }

  void number_steps() {
    std::size_t all = 0;
    for (const Schedule& one : schedules_) all += one.steps.size();
    all *= static_cast<std::size_t>(options_.calls);
    states_.resize(all);
    steps_.reserve(all);
    for (const Schedule& one : schedules_) {
      first_step_.push_back(static_cast<std::uint32_t>(steps_.size()));
      for (int call = 0; call < options_.calls; ++call) {
        // Steps of later calls also wait for the call before.
        if (call > 0) {
          for (std::size_t i = 0; i < one.steps.size(); ++i) states_[steps_.size() + i].waits = 1;
        }
        for (const Step& s : one.steps) steps_.push_back(&s);
      }
    }
  }

  // Calls f(earlier, later) for each pair of steps of a rank in which the later one waits for the earlier one.
  template <class F>
  void for_dependencies(F f) const {
    std::unordered_map<std::uint64_t, std::uint32_t> last_of_lane;
    for (std::size_t rank = 0; rank < schedules_.size(); ++rank) {
      const Schedule& one = schedules_[rank];
      last_of_lane.clear();
      for (std::uint32_t i = 0; i < steps_of(rank); ++i) {
        const std::uint32_t later = first_step_[rank] + i;
        const Step& s = step(later);
        const auto first = first_step_[rank] + i - i % static_cast<std::uint32_t>(one.steps.size());
        for (const std::uint32_t d : one.dependencies_of(s)) f(first + d, later);
        const std::uint64_t way = is_local(s.kind) ? 0 : s.kind == StepKind::kSend ? 1 : 2;
        const auto [at, is_first] = last_of_lane.try_emplace(way << 32 | static_cast<std::uint32_t>(s.peer), later);
        if (!is_first) f(std::exchange(at->second, later), later);
      }
    }
  }

  void find_dependents() {
    dependents_.first.assign(states_.size() + 1, 0);
    for_dependencies([&](std::uint32_t earlier, std::uint32_t later) {
      ++dependents_.first[earlier + 1];
      ++states_[later].waits;
    });
    for (std::size_t s = 0; s < states_.size(); ++s) dependents_.first[s + 1] += dependents_.first[s];
    dependents_.steps.resize(dependents_.first.back());
    std::vector<std::uint32_t> filled(dependents_.first.begin(), dependents_.first.end() - 1);
    for_dependencies([&](std::uint32_t earlier, std::uint32_t later) { dependents_.steps[filled[earlier]++] = later; });
  }

  // One lane, whose chunks are counted at both ends.
  struct Lane {
    std::vector<std::uint32_t> sends;
    std::vector<std::uint32_t> receives;
  };
  Status match_messages() {
    std::unordered_map<std::uint64_t, Lane> lanes;
    for (std::uint32_t rank = 0; rank < schedules_.size(); ++rank) {
      for (std::uint32_t i = 0; i < steps_of(rank); ++i) {
        const Step& s = step(first_step_[rank] + i);
        if (is_local(s.kind)) continue;
        const auto peer =
            static_cast<std::uint32_t>(options_.representative ? options_.representative(s.peer) : s.peer);
        if (peer >= schedules_.size()) return bad(rank, i, "its peer is not a rank");
        const std::uint64_t crosses = peer != static_cast<std::uint32_t>(s.peer) ? std::uint64_t{1} << 63 : 0;
        if (s.kind == StepKind::kSend) {
          lanes[crosses | std::uint64_t{rank} << 32 | peer].sends.push_back(first_step_[rank] + i);
        } else {
          lanes[crosses | std::uint64_t{peer} << 32 | rank].receives.push_back(first_step_[rank] + i);
        }
      }
    }
    for (const auto& [ends, lane] : lanes) {
      if (Status s = ends >> 63 != 0 ? match_one_to_one(lane) : match_lane(lane); !s.is_ok()) return s;
    }
    return {};
  }
  // For several peers that one rank represents.
  Status match_one_to_one(const Lane& lane) {
    if (lane.sends.size() != lane.receives.size())
      return bad((lane.sends.empty() ? lane.receives : lane.sends)[0], kUnlike);
    for (std::size_t i = 0; i < lane.sends.size(); ++i) {
      if (step(lane.sends[i]).chunks != step(lane.receives[i]).chunks) return bad(lane.sends[i], kUnlike);
      states_[lane.sends[i]].match = states_[lane.sends[i]].last = lane.receives[i];
      states_[lane.receives[i]].sends = 1;
    }
    return {};
  }
  Status match_lane(const Lane& lane) {
    std::size_t r = 0;
    std::uint32_t left = 0;  // chunks of receive r - 1 that no send has brought
    std::uint32_t receive = kNone;
    for (const std::uint32_t send : lane.sends) {
      State& state = states_[send];
      for (std::uint32_t chunks = step(send).chunks; chunks > 0;) {
        if (left == 0) {
          if (r == lane.receives.size()) return bad(send, "no receive of its peer matches it");
          receive = lane.receives[r++];
          left = step(receive).chunks;
          continue;
        }
        if (state.match == kNone) state.match = receive;
        if (state.last != receive) ++states_[receive].sends;
        state.last = receive;
        const std::uint32_t taken = std::min(chunks, left);
        chunks -= taken;
        left -= taken;
      }
    }
    if (left > 0) return bad(receive, "its peer does not send all of it");
    if (r < lane.receives.size()) return bad(lane.receives[r], "no send of its peer matches it");
    return {};
  }
  [[nodiscard]] Status bad(std::uint32_t rank, std::uint32_t index, const char* why) const {
    return Status::invalid_argument(fmt::format("rank {}, step {}: {}", rank, index, why));
  }
  [[nodiscard]] Status bad(std::uint32_t s, const char* why) const {
    const int rank = rank_of(s);
    const auto r = static_cast<std::size_t>(rank);
    return bad(static_cast<std::uint32_t>(rank),
               (s - first_step_[r]) % static_cast<std::uint32_t>(schedules_[r].steps.size()), why);
  }

  // ---- Events ---------------------------------------------------------------------------------

  void push(double time_us, std::uint32_t s, Stage stage) { events_.push({time_us, next_number_++, s, stage}); }

  // All steps for which it had to wait on its own rank have begun.
  void release(std::uint32_t s) {
    State& state = states_[s];
    if (!is_recv(step(s).kind)) return push(state.ready_us, s, Stage::kStart);
    state.waits = kNone;  // its message has arrived
    if (state.sends == 0) return push(std::max(state.ready_us, state.arrived_us), s, Stage::kStart);
    if (waiting_send_.empty()) return;
    const auto waiting = waiting_send_.find(s);
    if (waiting == waiting_send_.end()) return;
    for (const std::uint32_t send : waiting->second) {
      push(std::max(states_[send].first_us, state.ready_us), send, Stage::kInject);
    }
    waiting_send_.erase(waiting);
  }
  [[nodiscard]] bool is_there(std::uint32_t receive) const { return states_[receive].waits == kNone; }

  Status run_events() {
    for (std::uint64_t count = 1; !events_.empty(); ++count) {
      const Event event = events_.top();
      events_.pop();
      const Step& s = step(event.step);
      if (event.stage == Stage::kInject) {
        inject(event.step, event.time_us);
      } else if (s.kind == StepKind::kSend) {
        start_send(event.step, event.time_us);
      } else if (is_recv(s.kind)) {
        receive(event.step, event.time_us);
      } else {
        const int rank = rank_of(event.step);
        const double bytes = bytes_of(s);
        const double each = s.kind == StepKind::kCopy ? net_.copy_us_per_byte(rank, call_bytes_)
                                                      : net_.combine_us_per_byte(rank, call_bytes_);
        states_[event.step].end_us = work(event.step, event.time_us, bytes * each);
        complete(event.step, event.time_us, 0, 0);
      }
      if (count % kEventsBetweenInterrupts == 0 && options_.interrupt) {
        if (Status status = options_.interrupt(); !status.is_ok()) return status;
      }
    }
    return {};
  }

  // Gives a processor of the rank work at `time_us`; returns the time at which all work of the rank is done.
  double work(std::uint32_t s, double time_us, double work_us, bool has_waited = false) {
    const int rank = rank_of(s);
    double& busy = ranks_[static_cast<std::size_t>(rank)];  // until then the rank has work
    const Processors those = net_.processors_of(rank);
    const double turn = has_waited && time_us > busy ? those.turn_us : 0;
    const double begin = std::max(time_us, busy) + turn;
    const auto all = std::span(processors_).subspan(those.first, those.count);
    double& processor = *std::min_element(all.begin(), all.end());
    const double takes = work_us * net_.slowness(rank);
    timing_.processor_us[static_cast<std::size_t>(&processor - processors_.data())] += takes;
    timing_.work_us[static_cast<std::size_t>(rank)] += takes;
    // While the rank waits for a time slice, other ranks use the processor.
    busy = std::max(processor, begin) + takes;
    processor = std::max(processor, begin - turn) + takes;
    return busy;
  }
  double slowness(std::uint32_t s) const { return net_.slowness(rank_of(s)); }

  void start_send(std::uint32_t s, double time_us) {
    State& state = states_[s];
    const double bytes = bytes_of(step(s));
    net_.find_route(rank_of(s), step(s).peer, call_bytes_, route_);
    state.end_us = work(s, time_us, route_.message_us + bytes * route_.send_us_per_byte);
    const double piece = piece_of(bytes);
    const double first = time_us + (route_.message_us + piece * route_.send_us_per_byte) * slowness(s);
    state.first_us = piece < bytes ? std::min(first, state.end_us) : state.end_us;
    if (bytes > route_.buffer_bytes && !is_there(state.match)) {
      waiting_send_[state.match].push_back(s);
      return;
    }
    const double posted = bytes > route_.buffer_bytes ? states_[state.match].ready_us : 0;
    push(std::max(state.first_us, posted), s, Stage::kInject);
  }
  [[nodiscard]] double piece_of(double bytes) const {
    return route_.piece_bytes > 0 ? std::min(route_.piece_bytes, bytes) : bytes;
  }

  // The bytes pass all resources of the route, one piece after the other.
  void inject(std::uint32_t s, double time_us) {
    State& state = states_[s];
    const double bytes = bytes_of(step(s));
    net_.find_route(rank_of(s), step(s).peer, call_bytes_, route_);
    const double piece = piece_of(bytes);
    double end = std::max(state.end_us, time_us);
    double slowest = 0;
    for (const std::uint32_t r : route_.resources) {
      const double each = net_.us_per_byte(r);
      links_[r] = std::max(links_[r], time_us) + bytes * each;
      timing_.resource_bytes[r] += bytes;
      timing_.resource_us[r] += bytes * each;
      end = std::max(end, links_[r]);
      slowest = std::max(slowest, each);
    }
    ++timing_.messages;
    const double first = piece < bytes ? std::min(end, time_us + piece * slowest) : end;
    state.end_us = end;
    complete(s, first, piece * std::max(slowest, route_.send_us_per_byte), piece < bytes ? first : end);
    for (std::uint32_t r = state.match;; r = next_receive(r)) {
      State& to = states_[r];
      to.arrived_us = std::max(to.arrived_us, state.first_us + route_.latency_us);
      to.arrived_end_us = std::max(to.arrived_end_us, state.end_us + route_.latency_us);
      if (--to.sends == 0 && is_there(r)) push(std::max(to.ready_us, to.arrived_us), r, Stage::kStart);
      if (r == state.last) break;
    }
  }
  // The next one that receives from the same peer.
  [[nodiscard]] std::uint32_t next_receive(std::uint32_t r) const {
    const std::int32_t peer = step(r).peer;
    do {
      ++r;
    } while (!is_recv(step(r).kind) || step(r).peer != peer);
    return r;
  }

  void receive(std::uint32_t s, double time_us) {
    State& state = states_[s];
    const Step& what = step(s);
    const double bytes = bytes_of(what);
    net_.find_route(what.peer, rank_of(s), call_bytes_, route_);
    const double combine = what.kind == StepKind::kRecvReduce ? net_.combine_us_per_byte(rank_of(s), call_bytes_) : 0;
    const double each = route_.receive_us_per_byte + combine;
    state.end_us = work(s, time_us, route_.message_us + bytes * each, true);
    const double piece = piece_of(bytes);
    state.floor_us = std::max(state.floor_us, state.arrived_end_us);
    const double first = time_us + (route_.message_us + piece * each) * slowness(s);
    complete(s, time_us, piece < bytes ? piece * each * slowness(s) : 0, piece < bytes ? first : 0);
  }

  // The step has begun at `begin_us`. Its last piece takes `tail_us` after the last piece of its dependencies. Its
  // first piece is done at `first_us`, or, if that is 0, with the whole step.
  void complete(std::uint32_t s, double begin_us, double tail_us, double first_us) {
    State& state = states_[s];
    state.end_us = std::max(state.end_us, state.floor_us + (state.floor_us > begin_us ? tail_us : 0));
    state.first_us = first_us > 0 ? std::min(first_us, state.end_us) : state.end_us;
    ++ended_;
    const int rank = rank_of(s);
    if (options_.keeps_steps) begins_[s] = begin_us;
    for (std::uint32_t i = dependents_.first[s]; i < dependents_.first[s + 1]; ++i) {
      const std::uint32_t d = dependents_.steps[i];
      State& later = states_[d];
      let_follow(schedules_[static_cast<std::size_t>(rank)].shape, s, d);
      if (--later.waits == 0) release(d);
    }
    end_step(static_cast<std::size_t>(rank), state.end_us);
  }

  // Does not reserve the processor: earlier work would wait for a reservation in the future.
  double begin_call(std::size_t rank, double time_us) {
    double& busy = ranks_[rank];
    return busy = std::max(busy, time_us) + net_.call_us();
  }
  // The last step of a call begins the next call.
  void end_step(std::size_t rank, double end_us) {
    CallEnd& end = ends_[rank];
    end.us = std::max(end.us, end_us);
    if (--end.left > 0) return;
    double& call = timing_.calls_us[static_cast<std::size_t>(end.calls++)];
    call = std::max(call, end.us);
    if (end.calls == options_.calls) return;
    const auto steps = static_cast<std::uint32_t>(schedules_[rank].steps.size());
    end.left = steps;
    const std::uint32_t first = first_step_[rank] + static_cast<std::uint32_t>(end.calls) * steps;
    const double begin = begin_call(rank, end.us);
    for (std::uint32_t s = first; s < first + steps; ++s) {
      states_[s].ready_us = std::max(states_[s].ready_us, begin);
      if (--states_[s].waits == 0) release(s);
    }
  }

  // How far the earlier step must have advanced for the later one to begin, and to end.
  void let_follow(const Shape& shape, std::uint32_t earlier, std::uint32_t later) {
    const State& from = states_[earlier];
    State& to = states_[later];
    const Step& e = step(earlier);
    const Step& l = step(later);
    double begin = -1;
    double end = -1;
    for_conflicts(shape, l, e, [&](const Conflict& c) {
      const std::uint32_t low = std::max(c.later.range.first, c.earlier.range.first);
      const std::uint32_t high =
          std::min(c.later.range.first + c.later.range.count, c.earlier.range.first + c.earlier.range.count);
      const double whole = c.earlier.range.count;
      begin = std::max(begin, (low - c.earlier.range.first) / whole);
      end = std::max(end, (high - c.earlier.range.first) / whole);
    });
    const bool same_lane = same_ordered_lane(e, l) || (e.kind == StepKind::kSend && l.kind == StepKind::kSend);
    if (begin < 0 && !same_lane) begin = end = 1;  // only orders the steps
    if (begin < 0) begin = 0, end = 1;
    const auto at = [&](double share) { return from.first_us + share * (from.end_us - from.first_us); };
    to.ready_us = std::max(to.ready_us, at(begin));
    to.floor_us = std::max(to.floor_us, at(end));
  }

  [[nodiscard]] Status describe_stuck() const {
    for (std::uint32_t s = 0; s < states_.size(); ++s) {
      if (states_[s].end_us == 0 && states_[s].waits != 0) return bad(s, "it never begins: ranks wait for each other");
    }
    return Status::invalid_argument("ranks wait for each other");
  }

  Result<Timing> finish() {
    timing_.rank_us.assign(schedules_.size(), 0);
    if (options_.keeps_steps) timing_.steps.resize(schedules_.size());
    for (std::size_t rank = 0; rank < schedules_.size(); ++rank) {
      for (std::uint32_t i = 0; i < steps_of(rank); ++i) {
        const std::uint32_t s = first_step_[rank] + i;
        timing_.rank_us[rank] = std::max(timing_.rank_us[rank], states_[s].end_us);
        if (options_.keeps_steps) timing_.steps[rank].push_back({begins_[s], states_[s].end_us});
      }
      timing_.total_us = std::max(timing_.total_us, timing_.rank_us[rank]);
    }
    return std::move(timing_);
  }

  std::span<const Schedule> schedules_;
  const Layout& layout_;
  const Interconnect& net_;
  const SimulationOptions& options_;
  const double call_bytes_;
  std::vector<const Step*> steps_;
  std::vector<std::uint32_t> first_step_;  // of each rank
  std::vector<State> states_;
  Dependents dependents_;
  std::vector<double> begins_;                                                  // where steps are kept
  std::unordered_map<std::uint32_t, std::vector<std::uint32_t>> waiting_send_;  // by the receive that has not begun yet
  std::vector<double> links_;       // when each has finished its accepted work
  std::vector<double> processors_;  // likewise
  std::vector<double> ranks_;       // likewise
  std::vector<CallEnd> ends_;       // of each rank
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::uint64_t next_number_ = 0;
  std::size_t ended_ = 0;
  Route route_;
  Timing timing_;
};

}  // namespace

Result<Timing> simulate(std::span<const Schedule> schedules, const Layout& layout, const Interconnect& interconnect,
                        const SimulationOptions& options) {
  return Simulation(schedules, layout, interconnect, options).run();
}

std::size_t bytes_to_simulate(std::size_t steps) {
  constexpr std::size_t kDependents = 3;  // of a step, with those of its lane
  return steps * (sizeof(State) + sizeof(const Step*) + sizeof(Event) + (1 + kDependents) * sizeof(std::uint32_t));
}

}  // namespace tutti::internal::schedule
