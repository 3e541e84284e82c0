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

// Why the step is malformed, or nullptr.
const char* malformed(const Schedule& schedule, const Step& s, std::size_t index) {
  const Shape& shape = schedule.shape;
  if (s.chunks == 0 || s.chunk >= shape.chunks || s.chunks > shape.chunks - s.chunk) return "no such chunks";
  if (is_local(s.kind) ? s.peer != -1 : s.peer < 0 || s.peer >= shape.ranks || s.peer == schedule.rank) {
    return "no such peer";
  }
  if (writes_target(s.kind) && s.target == Buffer::kInput) return "writes the input";
  if (s.kind == StepKind::kCopy && s.source == s.target) return "copies onto itself";
  if (s.kind == StepKind::kReduce && s.source == s.operand) return "combines a value with itself";
  for (std::uint32_t c = s.chunk; c < s.chunk + s.chunks; ++c) {
    if (reads(s, Buffer::kInput) && !shape.in_input(schedule.rank, c)) {
      return "reads a chunk that the input lacks";
    }
    const bool output = reads(s, Buffer::kOutput) || writes(s, Buffer::kOutput);
    if (output && !shape.in_output(schedule.rank, c)) return "uses a chunk that the output lacks";
  }
  if (std::size_t{s.first_dependency} + s.dependencies > schedule.dependencies.size()) return "no such dependencies";
  for (const std::uint32_t d : schedule.dependencies_of(s)) {
    if (d >= index) return "depends on a step that is not before it";
  }
  if (s.final && s.kind != StepKind::kRecvReduce && s.kind != StepKind::kReduce) return "is final and combines nothing";
  return nullptr;
}

Status check_one(const Schedule& schedule) {
  bool scratch = false;
  bool sliceable = true;
  for (std::size_t i = 0; i < schedule.steps.size(); ++i) {
    const Step& s = schedule.steps[i];
    if (const char* why = malformed(schedule, s, i)) return at_step(schedule, i, why);
    scratch |= reads(s, Buffer::kScratch) || writes(s, Buffer::kScratch);
    const std::uint32_t per_block = schedule.shape.chunks_per_block();
    if (s.chunk / per_block != (s.chunk + s.chunks - 1) / per_block) sliceable = false;
  }
  const std::string rank = fmt::format("rank {}", schedule.rank);
  if (scratch && !schedule.uses_scratch) return Status::internal(rank + ": uses scratch and does not say so");
  if (schedule.sliceable && !sliceable) return Status::internal(rank + ": a step spans blocks of a sliceable schedule");
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
  text += std::to_string(s.chunk);
  if (s.chunks != 1) text.append("+").append(std::to_string(s.chunks));
  text += "): ";
  return Status::internal(text + why);
}

Status check_form(std::span<const Schedule> schedules) {
  Status status = schedules.empty() ? check_shape({}, 0) : check_shape(schedules.front().shape, schedules.size());
  for (std::size_t r = 0; status.is_ok() && r < schedules.size(); ++r) {
    if (static_cast<std::size_t>(schedules[r].rank) != r || !same_shape(schedules[r].shape, schedules[0].shape)) {
      status = Status::internal(fmt::format("schedule {} has another rank or another shape", r));
    } else {
      status = check_one(schedules[r]);
    }
  }
  return status;
}

}  // namespace parts

Result<Proof> verify(std::span<const Schedule> schedules, const Interrupt& interrupt) {
  Proof proof;
  parts::Pause pause(interrupt);
  Status status = parts::check_form(schedules);
  if (status.is_ok()) status = parts::check_races(schedules, proof, pause);
  if (status.is_ok()) status = parts::check_flow(schedules, proof, pause);
  if (status.is_ok()) status = parts::check_program_order(schedules, pause);
  if (!status.is_ok()) return status;
  for (const Schedule& s : schedules) proof.steps += s.steps.size();
  return proof;
}

}  // namespace tutti::internal::schedule
