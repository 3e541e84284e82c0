#include "interpreter.h"

#include <algorithm>
#include <random>
#include <utility>

#include "schedule/layout.h"

namespace tutti::internal::schedule {
namespace {

class Machine {
 public:
  Machine(std::span<const Schedule> schedules, const std::vector<Vector>& inputs, const Run& run)
      : schedules_(schedules),
        layout_(schedules[0].shape, run.block_elements, sizeof(std::uint32_t), run.slice_begin, run.slice_elements),
        in_place_(run.in_place),
        order_(run.order),
        random_(run.seed) {
    for (std::size_t r = 0; r < schedules.size(); ++r) {
      const Vector untouched(inputs[r].size(), kUntouched);
      const std::uint32_t parts = schedules[r].shape.chunks_per_block();
      const std::size_t scratch_blocks = (schedules[r].scratch_chunks + parts - 1) / parts;
      memory_.push_back({inputs[r], untouched, Vector(scratch_blocks * run.block_elements, kUntouched)});
      done_.emplace_back(schedules[r].steps.size(), 0);
    }
  }

  Result<std::vector<Vector>> run() {
    for (;;) {
      const auto events = possible();
      if (events.empty()) break;
      happen(events[random_() % events.size()]);
    }
    for (std::size_t r = 0; r < schedules_.size(); ++r) {
      for (std::size_t i = 0; i < done_[r].size(); ++i) {
        if (done_[r][i] < schedules_[r].steps[i].chunks) return Status::internal("nothing can happen any more");
      }
    }
    std::vector<Vector> outputs;
    for (auto& m : memory_) outputs.push_back(m[in_place_ ? 0 : 1]);
    return outputs;
  }

 private:
  struct At {
    std::size_t rank;
    std::size_t step;
  };
  // A local step alone, or a send with its receive.
  struct Event {
    At first;
    At receive;
  };

  const Step& step(At at) const { return schedules_[at.rank].steps[at.step]; }
  bool complete(At at) const { return done_[at.rank][at.step] == step(at).chunks; }

  // Whether the step's next chunk may be touched.
  bool ready(At at) const {
    const Step& s = step(at);
    const std::uint32_t k = done_[at.rank][at.step];
    bool waits = false;
    for (const std::uint32_t d : schedules_[at.rank].dependencies_of(s)) {
      bool shares_memory = false;
      for_conflicts(schedules_[0].shape, s, step({at.rank, d}), [&](const Conflict& c) {
        const std::uint32_t mine = c.later.range.first + k;
        const ChunkRange theirs = c.earlier.range;
        const bool meets = mine >= theirs.first && mine < theirs.first + theirs.count;
        waits |= meets && done_[at.rank][d] <= mine - theirs.first && (in_place_ || !c.in_place_only);
        shares_memory = true;
      });
      waits |= !shares_memory && !complete({at.rank, d});
    }
    return !waits;
  }

  // The first incomplete step of a lane; local steps are the lane of peer -1.
  bool head(std::size_t rank, std::int32_t peer, bool receives, At& at) const {
    for (std::size_t i = 0; i < done_[rank].size(); ++i) {
      at = {rank, i};
      if (step(at).peer == peer && is_recv(step(at).kind) == receives && !complete(at)) return true;
    }
    return false;
  }

  std::vector<Event> possible() const {
    std::vector<Event> events;
    for (std::size_t a = 0; a < schedules_.size(); ++a) {
      At at{};
      if (head(a, -1, false, at) && ready(at)) events.push_back({at, at});
      for (std::size_t b = 0; b < schedules_.size(); ++b) {
        At to{};
        if (a == b || !head(a, static_cast<std::int32_t>(b), false, at)) continue;
        if (head(b, static_cast<std::int32_t>(a), true, to) && ready(at) && ready(to)) events.push_back({at, to});
      }
    }
    return events;
  }

  std::uint32_t* chunk(At at, Buffer b, std::uint32_t c) {
    const std::size_t which = in_place_ && b == Buffer::kOutput ? 0 : static_cast<std::size_t>(b);
    return memory_[at.rank][which].data() + layout_.begin(c) / sizeof(std::uint32_t);
  }

  void happen(const Event& e) {
    const Step& s = step(e.first);
    const Step& t = step(e.receive);
    const std::uint32_t from = s.source_chunk + done_[e.first.rank][e.first.step];
    const std::uint32_t done = done_[e.receive.rank][e.receive.step];
    const std::uint32_t to = t.target_chunk + done;
    const std::uint32_t* source = chunk(e.first, s.source, from);
    std::uint32_t* target = chunk(e.receive, t.target, to);
    const bool reduces = t.kind == StepKind::kReduce;
    const std::uint32_t* other =
        reduces ? chunk(e.receive, t.operand, to) : chunk(e.receive, t.source, t.source_chunk + done);
    const bool combines = t.kind == StepKind::kRecvReduce || reduces;
    // In a kReduce the source is the rank's own operand, in a kRecvReduce the received one is not.
    const bool source_first = reduces != t.reversed;
    for (std::size_t i = 0; i < layout_.size(to) / sizeof(std::uint32_t); ++i) {
      if (!combines) {
        target[i] = source[i];
      } else if (order_ == Order::kAny) {
        target[i] = source[i] + other[i];
      } else {
        target[i] = source_first ? compose(source[i], other[i]) : compose(other[i], source[i]);
      }
    }
    ++done_[e.first.rank][e.first.step];
    if (!is_local(s.kind)) ++done_[e.receive.rank][e.receive.step];
  }

  std::span<const Schedule> schedules_;
  Layout layout_;
  bool in_place_;
  Order order_;
  std::mt19937 random_;
  std::vector<std::vector<Vector>> memory_;       // per rank: input, output, scratch
  std::vector<std::vector<std::uint32_t>> done_;  // per rank and step: chunks
};

}  // namespace

Result<std::vector<Vector>> interpret(std::span<const Schedule> schedules, const std::vector<Vector>& inputs,
                                      const Run& run) {
  return Machine(schedules, inputs, run).run();
}

}  // namespace tutti::internal::schedule
