#include "tools/trace/ran_steps.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "schedule/layout.h"

namespace tutti::internal::tools {
namespace {

using observe::TracedStep;
using schedule::Schedule;
using schedule::Step;
using schedule::StepKind;

// When the steps of one rank ended, in us; each step once for each slice.
class Ends {
 public:
  Ends(const Schedule& schedule, double begun_us)
      : schedule_(schedule), begun_us_(begun_us), of_steps_(schedule.steps.size()) {}
  void add(std::uint32_t step, double ended_us) { of_steps_[step].push_back(ended_us); }
  // When its own rank had done all that the step needs.
  [[nodiscard]] double ready(std::uint32_t step, std::size_t slice) const { return ready(step, slice, true); }

 private:
  [[nodiscard]] double ready(std::uint32_t step, std::size_t slice, bool looks_further) const {
    double ready = begun_us_;
    for (const std::uint32_t other : schedule_.dependencies_of(schedule_.steps[step])) {
      const std::vector<double>& ends = of_steps_[other];
      if (slice < ends.size()) {
        ready = std::max(ready, ends[slice]);
      } else if (looks_further) {
        // It moved nothing, or ran as one with the receive before it.
        ready = std::max(ready, this->ready(other, slice, false));
      }
    }
    return ready;
  }

  const Schedule& schedule_;
  const double begun_us_;
  std::vector<std::vector<double>> of_steps_;
};

struct Message {
  std::uint32_t step = 0;
  std::size_t slice = 0;
  std::uint64_t bytes = 0;
  double ended_us = 0;
  double after_us = 0;  // in schedule order, when the rank came to it
};

// One rank's side of the collective, as it ran or as predicted.
struct Side {
  Ends ends;
  std::map<int, std::vector<Message>> sent;  // by peer, in order
  std::map<int, std::vector<Message>> received;

  void add(std::uint32_t index, StepKind kind, int peer, std::uint64_t bytes, double ended_us, double after_us,
           std::size_t slice) {
    ends.add(index, ended_us);
    if (schedule::is_local(kind) || bytes == 0) return;
    (schedule::is_recv(kind) ? received : sent)[peer].push_back({index, slice, bytes, ended_us, after_us});
  }
};

Side ran(const RankPart& part, const Schedule& schedule, std::int64_t first_ns) {
  const auto us = [&](std::int64_t ns) { return static_cast<double>(ns + part.shift_ns - first_ns) / 1000; };
  const double begun_us = us(part.operation->begun_ns);
  Side side{Ends(schedule, begun_us), {}, {}};
  std::vector<std::size_t> slices(schedule.steps.size());
  double before_us = begun_us;
  for (const TracedStep& step : part.steps->steps) {
    side.add(step.step, static_cast<StepKind>(step.kind), step.peer, step.bytes, us(step.ended_ns),
             part.steps->in_order ? before_us : begun_us, slices[step.step]++);
    before_us = us(step.ended_ns);
  }
  return side;
}

Side predicted_side(const Predicted& predicted, std::size_t rank, std::uint64_t bytes, std::uint32_t element_bytes) {
  const Schedule& schedule = predicted.schedules[rank];
  const schedule::Layout layout(schedule.shape, bytes / element_bytes / schedule.shape.blocks, element_bytes);
  Side side{Ends(schedule, 0), {}, {}};
  for (std::uint32_t i = 0; i < schedule.steps.size(); ++i) {
    const Step& step = schedule.steps[i];
    const auto range = schedule::writes_target(step.kind) ? step.target_range() : step.source_range();
    side.add(i, step.kind, step.peer, layout.bytes(range).size, predicted.timing.steps[rank][i].end_us, 0, 0);
  }
  return side;
}

struct Sum {
  double us = 0;
  std::uint64_t bytes = 0;
};

// Empty: the messages do not match.
std::optional<std::map<std::pair<int, int>, Sum>> sums(const std::vector<Side>& sides) {
  std::map<std::pair<int, int>, Sum> all;
  for (std::size_t to = 0; to < sides.size(); ++to) {
    for (const auto& [from, received] : sides[to].received) {
      const Side& sender = sides[static_cast<std::size_t>(from)];
      const auto sent = sender.sent.find(static_cast<int>(to));
      if (sent == sender.sent.end()) return std::nullopt;
      Sum& sum = all[{from, static_cast<int>(to)}];
      double before_us = -1e18;
      for (std::size_t i = 0; i < std::min(received.size(), sent->second.size()); ++i) {
        const Message& message = received[i];
        const Message& source = sent->second[i];
        if (message.bytes != source.bytes) return std::nullopt;
        const double ready = std::max({sender.ends.ready(source.step, source.slice),
                                       sides[to].ends.ready(message.step, message.slice), message.after_us, before_us});
        sum.us += std::max(0.0, message.ended_us - ready);
        sum.bytes += message.bytes;
        before_us = message.ended_us;
      }
    }
  }
  return all;
}

}  // namespace

std::optional<Links> link_times(const std::vector<RankPart>& parts, const Predicted& predicted) {
  std::vector<Side> real;
  std::vector<Side> simulated;
  const std::int64_t first_ns = parts.front().operation->begun_ns + parts.front().shift_ns;
  for (std::size_t rank = 0; rank < parts.size(); ++rank) {
    const Schedule& schedule = predicted.schedules[rank];
    if (!matches(*parts[rank].steps, schedule)) return std::nullopt;
    real.push_back(ran(parts[rank], schedule, first_ns));
    simulated.push_back(predicted_side(predicted, rank, parts[rank].steps->bytes, parts[rank].steps->element_bytes));
  }
  const auto took = sums(real);
  const auto expected = sums(simulated);
  if (!took || !expected) return std::nullopt;
  Links links;
  for (const auto& [link, sum] : *took) {
    const auto known = expected->find(link);
    if (known == expected->end() || known->second.bytes == 0) return std::nullopt;
    // Of long operations, only the first messages are known.
    const double part = static_cast<double>(sum.bytes) / static_cast<double>(known->second.bytes);
    links[link] = {sum.us, known->second.us * part};
  }
  return links;
}

}  // namespace tutti::internal::tools
