#include "device_job.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "interpreter.h"

namespace tutti::internal::test {

using executor::FlatCall;
using executor::FlatCounter;
using executor::FlatLane;
using executor::FlatLaneEnd;

namespace {

std::vector<std::byte> untouched(std::size_t bytes) {
  std::vector<std::byte> values(bytes + sizeof schedule::kUntouched);
  for (std::size_t i = 0; i < bytes; i += sizeof schedule::kUntouched)
    std::memcpy(values.data() + i, &schedule::kUntouched, sizeof schedule::kUntouched);
  values.resize(bytes);
  return values;
}

}  // namespace

DeviceJob::DeviceJob(std::span<const schedule::Schedule> schedules, const std::vector<std::vector<std::byte>>& inputs,
                     const JobShape& shape)
    : shape_(shape), streams_(schedules.size()) {
  for (std::size_t r = 0; r < schedules.size(); ++r) make_rank(r, schedules[r], inputs[r]);
}

DeviceJob::Wire& DeviceJob::wire(int from, int to, unsigned channel) {
  std::unique_ptr<Wire>& wire = wires_[{{from, to}, channel}];
  if (wire == nullptr) {
    wire.reset(new Wire{DeviceArray<FlatCounter>(2), DeviceArray<executor::FlatHeader>(shape_.slot_count),
                        DeviceArray<std::byte>(std::size_t{shape_.slot_count} * shape_.slot_bytes)});
  }
  return *wire;
}

void DeviceJob::make_lanes(std::size_t rank) {
  std::vector<FlatLaneEnd> lanes;
  const int me = static_cast<int>(rank);
  for (unsigned c = 0; c < shape_.channels; ++c) {
    for (const FlatLane& lane : ranks_[rank]->program.lanes) {
      const Wire& w = lane.sends ? wire(me, lane.peer, c) : wire(lane.peer, me, c);
      lanes.push_back({w.counters.get(), w.counters.get() + 1, w.headers.get(), w.slots.get(), shape_.slot_bytes,
                       shape_.slot_count, 0});
    }
  }
  ranks_[rank]->lanes = std::make_unique<DeviceArray<FlatLaneEnd>>(lanes);
}

void DeviceJob::make_rank(std::size_t rank, const schedule::Schedule& schedule, const std::vector<std::byte>& input) {
  ranks_.push_back(std::make_unique<Rank>());
  Rank& own = *ranks_.back();
  own.program = executor::flatten(schedule);
  const executor::FlatProgram& program = own.program;
  const std::size_t element = size_of(shape_.type);
  const std::uint32_t parts = program.shape.chunks_per_block();
  const std::size_t scratch_blocks = (program.scratch_chunks + parts - 1) / parts;
  own.buffers.emplace_back(input);
  own.buffers.emplace_back(untouched(input.size()));
  own.buffers.emplace_back(untouched(scratch_blocks * shape_.block_elements * element));
  own.steps = std::make_unique<DeviceArray<executor::FlatStep>>(program.steps);
  own.waits = std::make_unique<DeviceArray<executor::FlatWait>>(program.waits);
  own.first_step = std::make_unique<DeviceArray<std::uint32_t>>(program.first_step);
  const std::size_t strands = program.first_step.size() - 1;
  own.progress = std::make_unique<DeviceArray<FlatCounter>>(strands * shape_.channels);
  make_lanes(rank);

  FlatCall call;
  call.program = {own.steps->get(), own.waits->get(), own.first_step->get()};
  for (int b = 0; b < schedule::kBuffers; ++b) {
    const int which = shape_.in_place && b == static_cast<int>(schedule::Buffer::kOutput) ? 0 : b;
    call.buffers[b] = own.buffers[which].get();
  }
  call.shape = program.shape;
  call.block_elements = shape_.block_elements;
  call.element_bytes = element;
  call.slice_elements = executor::flat_slice_elements(program, shape_.block_elements, element, shape_.slot_bytes);
  if (program.sliceable && shape_.channels > 1) {
    const std::size_t share = (shape_.block_elements + shape_.channels - 1) / shape_.channels;
    call.slice_elements = std::min(call.slice_elements, (share + 63) / 64 * 64);
  }
  const std::size_t each = std::max<std::size_t>(1, call.slice_elements);
  call.slices = static_cast<std::uint32_t>((shape_.block_elements + each - 1) / each);
  call.channels = shape_.channels;
  for (unsigned c = 0; c < shape_.channels; ++c) {
    call.first_slice = c;
    call.lanes = own.lanes->get() + c * program.lanes.size();
    call.progress = own.progress->get() + c * strands;
    own.calls.push_back(call);
  }
  own.device_calls = std::make_unique<DeviceArray<FlatCall>>(own.calls);
}

unsigned DeviceJob::strands() const {
  std::size_t all = 0;
  for (const auto& rank : ranks_) all += (rank->program.first_step.size() - 1) * shape_.channels;
  return static_cast<unsigned>(all);
}

void DeviceJob::set_fingerprint(std::size_t rank, const transport::Fingerprint& fingerprint) {
  for (FlatCall& call : ranks_[rank]->calls) call.fingerprint = fingerprint;
  ranks_[rank]->device_calls->write(ranks_[rank]->calls);
}

void DeviceJob::start(std::span<const std::size_t> ranks) {
  for (const std::size_t r : ranks) {
    const Rank& rank = *ranks_[r];
    const std::size_t strands = rank.program.first_step.size() - 1;
    if (strands == 0) continue;
    must(cudaMemsetAsync(rank.progress->get(), 0, strands * shape_.channels * sizeof(FlatCounter), streams_[r].get()),
         "cudaMemsetAsync");
    executor::DeviceRun run;
    run.calls = rank.device_calls->get();
    run.channels = shape_.channels;
    run.strands = static_cast<unsigned>(strands);
    run.type = shape_.type;
    run.op = shape_.op;
    run.divisor = shape_.divisor;
    run.control = control_.get();
    must(executor::run_on_device(run, streams_[r].get()), "run_on_device");
  }
}

void DeviceJob::start() {
  std::vector<std::size_t> all(ranks_.size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  start(all);
}

std::vector<std::vector<std::byte>> DeviceJob::outputs() const {
  std::vector<std::vector<std::byte>> outputs;
  for (const auto& rank : ranks_) outputs.push_back(rank->buffers[shape_.in_place ? 0 : 1].read());
  return outputs;
}

}  // namespace tutti::internal::test
