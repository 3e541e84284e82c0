#include "schedule/verify.h"

#include <fmt/core.h>

#include "schedule/verify_parts.h"

namespace tutti::internal::schedule {
namespace parts {
namespace {

Status check_shape(const Shape& shape, std::size_t ranks) {
  if (ranks == 0 || shape.ranks < 0 || static_cast<std::size_t>(shape.ranks) != ranks) {
    return Status::internal("there must be one schedule for each rank");
  }
  if (shape.root < 0 || shape.root >= shape.ranks) return Status::internal("the root is not a rank");
  if (shape.blocks != blocks_of(shape.collective, shape.ranks) || shape.chunks == 0 ||
      shape.chunks % shape.blocks != 0) {
    return Status::internal("the chunks do not fit the collective");
  }
  return Status::ok();
}

bool same_shape(const Shape& a, const Shape& b) {
  return a.collective == b.collective && a.ranks == b.ranks && a.root == b.root && a.chunks == b.chunks &&
         a.blocks == b.blocks;
}

// Why the rank does not have these chunks, or nullptr.
const char* outside(const Schedule& schedule, const Touched& place) {
  const CollectiveInfo& info = info_of(schedule.shape.collective);
  ChunkRange held{0, schedule.scratch_chunks};
  if (place.buffer == Buffer::kInput) held = schedule.shape.held(info.input, schedule.rank);
  if (place.buffer == Buffer::kOutput) held = schedule.shape.held(info.output, schedule.rank);
  const std::uint64_t end = std::uint64_t{place.range.first} + place.range.count;
  if (place.range.first >= held.first && end <= std::uint64_t{held.first} + held.count) return nullptr;
  if (place.buffer == Buffer::kScratch) return "uses more scratch than the schedule says";
  return place.buffer == Buffer::kInput ? "reads a chunk that the input lacks" : "uses a chunk that the output lacks";
}

// Why the step is malformed, or nullptr.
const char* malformed(const Schedule& schedule, const Step& s, std::size_t index) {
  const Shape& shape = schedule.shape;
  if (s.chunks == 0) return "no chunks";
  if (is_local(s.kind) ? s.peer != -1 : s.peer < 0 || s.peer >= shape.ranks || s.peer == schedule.rank) {
    return "no such peer";
  }
  if (writes_target(s.kind) && s.target == Buffer::kInput) return "writes the input";
  const bool same_chunk = s.source_chunk == s.target_chunk;
  if (s.kind == StepKind::kCopy && s.source == s.target && same_chunk) return "copies onto itself";
  if (s.kind == StepKind::kReduce && s.source == s.operand && same_chunk) return "combines a value with itself";
  if (!is_local(s.kind) && s.kind != StepKind::kRecvReduce && !same_chunk) return "has two places for one";
  const char* why = nullptr;
  for_touched(s, [&](const Touched& place) {
    if (why == nullptr) why = outside(schedule, place);
  });
  if (why != nullptr) return why;
  // A chunk in another part of a block has another size.
  if (s.source_chunk % shape.chunks_per_block() != s.target_chunk % shape.chunks_per_block())
    return "the source's chunks are other parts of a block than the target's";
  if (std::size_t{s.first_dependency} + s.dependencies > schedule.dependencies.size()) return "no such dependencies";
  for (const std::uint32_t d : schedule.dependencies_of(s)) {
    if (d >= index) return "depends on a step that is not before it";
  }
  if (s.reversed && s.kind != StepKind::kRecvReduce && s.kind != StepKind::kReduce)
    return "has reversed operands but combines nothing";
  if (s.final && s.kind != StepKind::kRecvReduce && s.kind != StepKind::kReduce) return "is final but combines nothing";
  return nullptr;
}

Status check_one(const Schedule& schedule) {
  bool sliceable = true;
  for (std::size_t i = 0; i < schedule.steps.size(); ++i) {
    const Step& s = schedule.steps[i];
    if (const char* why = malformed(schedule, s, i)) return at_step(schedule, i, why);
    for_touched(s, [&](const Touched& place) { sliceable = sliceable && schedule.shape.in_one_block(place.range); });
  }
  if (schedule.sliceable && !sliceable) {
    return Status::internal(fmt::format("rank {}: a step spans blocks of a sliceable schedule", schedule.rank));
  }
  return Status::ok();
}

}  // namespace

Status at_step(const Schedule& schedule, std::size_t step, const std::string& why) {
  static constexpr const char* kVerbs[] = {"send to ", "recv from ", "recv_reduce from ", "copy", "reduce"};
  const Step& s = schedule.steps[step];
  std::string text = "rank ";
  text += std::to_string(schedule.rank);
  text += ", step ";
  text += std::to_string(step);
  text += " (";
  text += kVerbs[static_cast<int>(s.kind)];
  if (!is_local(s.kind)) text += std::to_string(s.peer);
  text += ", chunk ";
  text += std::to_string(s.source_chunk);
  if (s.target_chunk != s.source_chunk) text.append(" -> ").append(std::to_string(s.target_chunk));
  if (s.chunks != 1) text.append("+").append(std::to_string(s.chunks));
  text += "): ";
  return Status::internal(text + why);
}

Status check_form(std::span<const Schedule> schedules) {
  Status status = schedules.empty() ? check_shape({}, 0) : check_shape(schedules.front().shape, schedules.size());
  for (std::size_t r = 0; status.is_ok() && r < schedules.size(); ++r) {
    if (static_cast<std::size_t>(schedules[r].rank) != r || !same_shape(schedules[r].shape, schedules[0].shape)) {
      status = Status::internal(fmt::format("schedule {} has another rank or another shape", r));
    } else if (schedules[r].sliceable != schedules[0].sliceable) {
      status = Status::internal(fmt::format("of ranks 0 and {} one runs in slices and one may not", r));
    } else {
      status = check_one(schedules[r]);
    }
  }
  return status;
}

}  // namespace parts

Result<Proof> verify(std::span<const Schedule> schedules, Order order, const Interrupt& interrupt) {
  Proof proof;
  parts::Pause pause(interrupt);
  Status status = parts::check_form(schedules);
  if (status.is_ok()) status = parts::check_races(schedules, proof, pause);
  if (status.is_ok()) status = parts::check_flow(schedules, order, proof, pause);
  if (status.is_ok()) status = parts::check_program_order(schedules, pause);
  if (!status.is_ok()) return status;
  for (const Schedule& s : schedules) proof.steps += s.steps.size();
  return proof;
}

}  // namespace tutti::internal::schedule
