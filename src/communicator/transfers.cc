#include "communicator/transfers.h"

#include <fmt/core.h>

#include <algorithm>

#include "calls/call.h"
#include "executor/cpu_executor.h"

namespace tutti::internal {
namespace {

using schedule::Buffer;
using schedule::Step;
using schedule::StepKind;

// If a lane has more transfers than a passive peer can take, the lanes run independently.
constexpr std::uint32_t kMostInOrder = 4;

// From this size on, a transfer in one direction is faster if the receiver reads the sender's memory than through
// slots, up to the plan's limit (Plan::most_read_bytes). Two processes that send to each other alternately, time with
// over time without: 1.35 at 192 KiB, 0.7 from 384 to 512 KiB, 0.87 at 1 MiB, 1.2 from 2 MiB. If the processors are far
// apart, shorter ones are faster too, as the plan says: 0.5 at 64 KiB, 0.4 from 128 to 256 KiB.
constexpr std::size_t kLeastReadBytes = std::size_t{320} << 10;

transport::Reading reading_of(std::size_t bytes) {
  return bytes >= kLeastReadBytes ? transport::Reading::kAlways : transport::Reading::kNever;
}

// Contains the next number of the pair in this direction, and what the transfer moves.
transport::Fingerprint next_fingerprint(std::vector<std::uint32_t>* numbers, const Transfer& t) {
  const std::uint32_t number = ++(*numbers)[static_cast<std::size_t>(t.peer)];
  return executor::fingerprint_of_transfer(number, t.type, executor::count_with_element_bytes(t.opaque, t.count));
}

std::uint32_t key_of(const Transfer& t) {
  return static_cast<std::uint32_t>(t.peer) << 1 | (t.sends ? 1u : 0u);
}

}  // namespace

void Transfers::Side::resize(std::size_t chunks) {
  places.resize(chunks);
  sources.resize(chunks);
  fingerprints.resize(chunks);
}

bool Transfers::Group::is_of(std::span<const Transfer> transfers) const {
  return std::equal(transfers.begin(), transfers.end(), key.begin(), key.end(),
                    [](const Transfer& t, std::uint32_t k) { return key_of(t) == k; });
}

Transfers::Transfers(int rank, int ranks) : rank_(rank), ranks_(ranks) {
  for (Direction& direction : directions_) {
    direction.numbers.resize(static_cast<std::size_t>(ranks));
    direction.plans.resize(static_cast<std::size_t>(ranks));
  }
}

// Chunk i of the input is the data of the i-th send, chunk i of the output the data of the i-th receive. Sends come
// first: they wait for nothing.
schedule::Schedule Transfers::write(std::span<const Transfer> transfers) const {
  schedule::Schedule schedule;
  schedule.shape.collective = Collective::kAllToAll;  // the most similar collective: blocks that are only moved
  schedule.shape.ranks = ranks_;
  schedule.shape.chunks = schedule.shape.blocks = static_cast<std::uint32_t>(transfers.size());
  schedule.rank = rank_;
  // A group on one side of a pair may be several groups on the other: data moves transfer by transfer.
  schedule.sliceable = false;
  std::vector<Step> copies;
  std::vector<Step> receives;
  std::uint32_t inputs = 0;
  std::uint32_t outputs = 0;
  std::size_t own_sends = 0;
  std::size_t own_receives = 0;
  for (const Transfer& t : transfers) {
    Step step;
    step.chunks = 1;
    step.peer = t.peer;
    step.kind = t.sends ? StepKind::kSend : StepKind::kRecv;
    step.source_chunk = step.target_chunk = t.sends ? inputs++ : outputs++;
    if (t.peer != rank_) {
      (t.sends ? schedule.steps : receives).push_back(step);
      continue;
    }
    step.kind = StepKind::kCopy;
    step.peer = -1;
    std::size_t& nth = t.sends ? own_sends : own_receives;
    if (nth == copies.size()) copies.push_back(step);
    (t.sends ? copies[nth].source_chunk : copies[nth].target_chunk) = step.source_chunk;
    ++nth;
  }
  schedule.steps.insert(schedule.steps.end(), copies.begin(), copies.end());
  schedule.steps.insert(schedule.steps.end(), receives.begin(), receives.end());
  return schedule;
}

Result<Transfers::Group*> Transfers::group_of(std::span<const Transfer> transfers, Plans& plans) {
  const auto found = std::find_if(groups_.begin(), groups_.end(), [&](const auto& g) { return g->is_of(transfers); });
  if (found != groups_.end()) return found->get();
  auto group = prepare(transfers, plans);
  if (!group.is_ok()) return group.status();
  // A program with that many different groups hardly repeats one, so none is worth keeping.
  if (groups_.size() == kMostGroups) {
    last_ = {};
    groups_.clear();
  }
  return groups_.emplace_back(std::move(*group)).get();
}

// Allocates the chunks and sets everything that does not depend on their memory.
Result<std::unique_ptr<Transfers::Group>> Transfers::prepare(std::span<const Transfer> transfers, Plans& plans) const {
  auto group = std::make_unique<Group>();
  std::array<std::size_t, 2> chunks{};
  for (const Transfer& t : transfers) {
    group->key.push_back(key_of(t));
    ++chunks[side_of(t)];
  }
  for (std::size_t i = 0; i < chunks.size(); ++i) group->sides[i].resize(chunks[i]);
  for (const Buffer buffer : {Buffer::kInput, Buffer::kOutput}) {
    const auto b = static_cast<std::size_t>(buffer);
    group->table.places[b] = group->sides[b].places.data();
    group->table.sources[b] = group->sides[b].sources.data();
    group->table.fingerprints[b] = group->sides[b].fingerprints.data();
  }
  group->operation.table = &group->table;
  auto made = plans.plan_transfers(write(transfers));
  if (!made.is_ok()) return made.status();
  group->plan = std::move(*made);
  group->operation.plan = group->plan.get();
  const auto& lanes = group->plan->lanes;
  const bool many = std::any_of(lanes.begin(), lanes.end(), [](const executor::Lane& lane) {
    return lane.link != nullptr && lane.steps.size() > kMostInOrder;
  });
  if (many) group->plan->in_order_bytes = group->plan->no_zcopy_bytes = group->plan->small_bytes = 0;
  group->located.steps.reserve(group->plan->in_order.size());
  return group;
}

// Buffers can be anywhere: they are addressed from 0. Allocates nothing: the transfers have got their numbers here, and
// an exception would skip these.
void Transfers::fill(Group* group, std::span<const Transfer> transfers) {
  std::array<std::size_t, 2> chunks{};
  std::array<std::uint64_t, 2> regions{};
  std::size_t largest = 0;
  std::size_t all = 0;
  for (const Transfer& t : transfers) {
    const std::size_t s = side_of(t);
    const std::size_t chunk = chunks[s]++;
    Side& side = group->sides[s];
    const std::size_t bytes = bytes_of(t);
    const auto address = static_cast<std::size_t>(reinterpret_cast<std::uintptr_t>(t.buffer));
    side.places[chunk] = {address, bytes};
    side.sources[chunk] = bind_buffer(t.buffer, bytes, address);
    side.fingerprints[chunk] = next_fingerprint(&direction_of(t).numbers, t);
    // One region suffices: data in a region may go by zero copy.
    regions[s] |= side.sources[chunk].region;
    largest = std::max(largest, bytes);
    all += bytes;
  }
  executor::Operation& operation = group->operation;
  for (std::size_t s = 0; s < regions.size(); ++s) operation.buffers[s].region = regions[s];
  operation.bytes = all;
  operation.reading = reading_of(largest);
  group->table.largest = largest;
  executor::CpuExecutor::locate(operation, &group->located);
  operation.located = &group->located;
}

// Sets the fields that differ between single transfers; the rest of the operation stays. Allocates nothing.
const executor::Operation* Transfers::bind_alone(Direction* direction, const executor::Plan& plan, const Transfer& t) {
  executor::Operation& operation = direction->operation;
  const std::size_t bytes = bytes_of(t);
  const bool located = operation.located != nullptr && operation.plan == &plan && operation.bytes == bytes;
  operation.fingerprint = next_fingerprint(&direction->numbers, t);
  operation.plan = &plan;
  operation.buffers[side_of(t)] = bind_buffer(t.buffer, bytes, 0);
  operation.block_elements = operation.bytes = bytes;
  operation.reading = reading_of(bytes);
  if (!located) {
    operation.located = nullptr;
    executor::CpuExecutor::locate(operation, &direction->located);
    operation.located = &direction->located;
  }
  return &operation;
}

Result<const executor::Operation*> Transfers::bind(std::span<const Transfer> transfers, Plans& plans) {
  if (transfers.size() == 1) {
    const Transfer& only = transfers.front();
    auto made = plans.plan_transfers(write(transfers));
    if (!made.is_ok()) return made.status();
    Direction& direction = direction_of(only);
    direction.located.steps.reserve((*made)->in_order.size());
    auto& plan = direction.plans[static_cast<std::size_t>(only.peer)];
    plan = std::move(*made);
    return bind_alone(&direction, *plan, only);
  }
  Group*& last = last_[side_of(transfers.front())];
  if (last == nullptr || !last->is_of(transfers)) [[unlikely]] {
    auto group = group_of(transfers, plans);
    if (!group.is_ok()) return group.status();
    last = *group;
  }
  fill(last, transfers);
  return &last->operation;
}

}  // namespace tutti::internal
