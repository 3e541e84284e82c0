#include "strand_rig.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <random>
#include <thread>

#include "base/clock.h"

namespace tutti::internal::executor {

using schedule::Buffer;
using schedule::compose;
using schedule::Order;
using schedule::Schedule;
using schedule::Vector;

void HostMemory::move(const Bytes& bytes) const {
  const auto at = [](const std::byte* from, std::size_t i) {
    std::uint32_t element = 0;
    std::memcpy(&element, from + i, sizeof element);
    return element;
  };
  for (std::size_t i = 0; i < bytes.size; i += sizeof(std::uint32_t)) {
    std::uint32_t value = at(bytes.second != nullptr ? bytes.second : bytes.first, i);
    if (bytes.first != nullptr && bytes.second != nullptr) {
      const std::uint32_t first = at(bytes.first, i);
      if (order_ == Order::kAny) {
        value += first;
      } else {
        value = bytes.reversed ? compose(value, first) : compose(first, value);
      }
      if (bytes.final) value += mark_;
    }
    if (bytes.target != nullptr) std::memcpy(bytes.target + i, &value, sizeof value);
    if (bytes.slot != nullptr) std::memcpy(bytes.slot + i, &value, sizeof value);
  }
}

// Each member its share of the elements.
void TeamMemory::move(const Bytes& bytes) const {
  const std::size_t share = (bytes.size / sizeof(std::uint32_t) / Team::kThreads) * sizeof(std::uint32_t);
  const std::size_t begin = member_ * share;
  const auto from = [begin](auto* at) { return at == nullptr ? at : at + begin; };
  Bytes own = bytes;
  own.first = from(bytes.first);
  own.second = from(bytes.second);
  own.target = from(bytes.target);
  own.slot = from(bytes.slot);
  own.size = member_ + 1 == Team::kThreads ? bytes.size - begin : share;
  memory_.move(own);
}

FlatLaneEnd* Wires::end(int from, int to, bool of_sender) {
  std::unique_ptr<Wire>& wire = wires_[{from, to}];
  if (wire == nullptr) {
    wire = std::make_unique<Wire>();
    wire->headers.resize(slot_count_);
    wire->slots.resize(std::size_t{slot_count_} * slot_bytes_);
    for (FlatLaneEnd& end : wire->ends) {
      end = {&wire->sent, &wire->taken, wire->headers.data(), wire->slots.data(), slot_bytes_, slot_count_, 0};
    }
  }
  return &wire->ends[of_sender ? 0 : 1];
}

struct FlatJob::Rank {
  FlatProgram program;
  std::vector<Vector> buffers;  // by Buffer; in place the output is not used
  std::vector<FlatLaneEnd> lanes;
  std::vector<FlatLaneEnd*> lasting;  // whose copies these are
  std::vector<FlatCounter> progress;
  FlatCall call;
  std::deque<Strand> strands;
};

FlatJob::FlatJob(std::span<const Schedule> schedules, const std::vector<Vector>& inputs, const schedule::Run& run,
                 Wires* wires, std::uint32_t mark)
    : memory_(run.order, mark), run_(run) {
  for (std::size_t r = 0; r < schedules.size(); ++r) {
    auto rank = std::make_unique<Rank>();
    rank->program = flatten(schedules[r]);
    const FlatProgram& program = rank->program;
    const std::uint32_t parts = program.shape.chunks_per_block();
    const std::size_t scratch_blocks = (program.scratch_chunks + parts - 1) / parts;
    rank->buffers = {inputs[r], Vector(inputs[r].size(), schedule::kUntouched),
                     Vector(scratch_blocks * run.block_elements, schedule::kUntouched)};
    for (const FlatLane& lane : program.lanes) {
      const int me = static_cast<int>(r);
      rank->lasting.push_back(lane.sends ? wires->end(me, lane.peer, true) : wires->end(lane.peer, me, false));
      rank->lanes.push_back(*rank->lasting.back());
    }
    rank->progress.resize(program.first_step.size() - 1);
    FlatCall& call = rank->call;
    call.program = view(program);
    call.lanes = rank->lanes.data();
    call.progress = rank->progress.data();
    for (int b = 0; b < schedule::kBuffers; ++b) {
      const int which = run.in_place && b == static_cast<int>(Buffer::kOutput) ? 0 : b;
      call.buffers[static_cast<std::size_t>(b)] =
          reinterpret_cast<std::byte*>(rank->buffers[static_cast<std::size_t>(which)].data());
    }
    call.shape = program.shape;
    call.block_elements = run.block_elements;
    call.element_bytes = sizeof(std::uint32_t);
    call.slice_elements = flat_slice_elements(program, run.block_elements, sizeof(std::uint32_t), wires->slot_bytes());
    call.slices =
        call.slice_elements == 0
            ? 0
            : static_cast<std::uint32_t>((run.block_elements + call.slice_elements - 1) / call.slice_elements);
    for (std::uint32_t s = 0; s < rank->progress.size(); ++s) rank->strands.emplace_back(call, s);
    ranks_.push_back(std::move(rank));
  }
}

FlatJob::~FlatJob() {
  for (const auto& rank : ranks_) {
    for (std::size_t i = 0; i < rank->lanes.size(); ++i) rank->lasting[i]->messages = rank->lanes[i].messages;
  }
}

void FlatJob::set_fingerprint(std::size_t rank, const transport::Fingerprint& fingerprint) {
  ranks_[rank]->call.fingerprint = fingerprint;
}

StrandState FlatJob::run_in_one_thread() {
  std::mt19937 random(run_.seed);
  std::vector<Strand*> strands;
  for (const auto& rank : ranks_) {
    for (Strand& strand : rank->strands) strands.push_back(&strand);
  }
  while (!strands.empty()) {
    std::shuffle(strands.begin(), strands.end(), random);
    bool moved = false;
    for (auto it = strands.begin(); it != strands.end();) {
      StrandState state = StrandState::kIdle;
      // Now and then far ahead of the others.
      do {
        state = (*it)->advance(memory_);
        moved |= state != StrandState::kIdle;
      } while (state == StrandState::kMoved && random() % 4 != 0);
      if (state == StrandState::kMismatch) return state;
      it = state == StrandState::kDone ? strands.erase(it) : it + 1;
    }
    if (!moved) return StrandState::kIdle;
  }
  return StrandState::kDone;
}

StrandState FlatJob::run_in_threads() {
  std::atomic<StrandState> worst{StrandState::kDone};
  const Deadline deadline = Deadline::after_ms(60'000);
  std::vector<std::thread> threads;
  for (const auto& rank : ranks_) {
    for (Strand& strand : rank->strands) {
      threads.emplace_back([&] {
        HostMemory memory = memory_;
        for (;;) {
          const StrandState state = strand.advance(memory);
          if (state == StrandState::kDone) return;
          if (state == StrandState::kMoved) continue;
          if (state == StrandState::kMismatch || deadline.passed()) {
            worst = state;
            return;
          }
          if (worst != StrandState::kDone) return;
          std::this_thread::yield();
        }
      });
    }
  }
  for (std::thread& thread : threads) thread.join();
  return worst;
}

StrandState FlatJob::run_in_teams() {
  std::atomic<bool> late{false};
  const Deadline deadline = Deadline::after_ms(60'000);
  std::deque<Team> teams;
  std::vector<std::thread> threads;
  for (const auto& rank : ranks_) {
    for (const Strand& strand : rank->strands) {
      Team* const team = &teams.emplace_back();
      for (std::size_t member = 0; member < Team::kThreads; ++member) {
        threads.emplace_back([&, team, member] {
          Strand own = strand;
          TeamMemory memory(memory_, team, member);
          StrandState state = StrandState::kMoved;
          while (state != StrandState::kDone && !late) {
            state = own.advance(memory);
            if (state == StrandState::kIdle) std::this_thread::yield();
            if (deadline.passed()) late = true;
          }
          team->all.arrive_and_drop();
        });
      }
    }
  }
  for (std::thread& thread : threads) thread.join();
  return late ? StrandState::kIdle : StrandState::kDone;
}

std::vector<Vector> FlatJob::outputs() const {
  std::vector<Vector> outputs;
  for (const auto& rank : ranks_) outputs.push_back(rank->buffers[run_.in_place ? 0 : 1]);
  return outputs;
}

const FlatProgram& FlatJob::program(std::size_t rank) const {
  return ranks_[rank]->program;
}

}  // namespace tutti::internal::executor
