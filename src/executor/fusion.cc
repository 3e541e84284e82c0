#include "executor/fusion.h"

namespace tutti::internal::executor {
namespace {

using schedule::Buffer;
using schedule::ChunkRange;
using schedule::Schedule;
using schedule::Step;
using schedule::StepKind;

bool overlap(const ChunkRange& a, const ChunkRange& b) {
  return a.first < b.first + b.count && b.first < a.first + a.count;
}

// Whether only `reader` reads the value that step i writes, and neither value stays as a result.
bool dead_but_for(const Schedule& schedule, std::uint32_t i, std::uint32_t reader) {
  const Step& writer = schedule.steps[i];
  const ChunkRange written = writer.target_range();
  const bool one_memory = info_of(schedule.shape.collective).input_is_output;
  // Memory cells as the Builder counts them: in an in-place call, input and output are one.
  const auto same_cell = [&](Buffer a, Buffer b) {
    return a == b || (one_memory && a != Buffer::kScratch && b != Buffer::kScratch);
  };
  for (std::uint32_t j = i + 1; j < schedule.steps.size(); ++j) {
    const Step& s = schedule.steps[j];
    bool is_read = false;
    schedule::for_touched(s, [&](const schedule::Touched& place) {
      const bool meets = same_cell(place.buffer, writer.target) && overlap(place.range, written);
      is_read |= j != reader && !place.is_written && meets;
    });
    if (is_read) return false;
    if (!schedule::writes_target(s.kind) || !overlap(s.target_range(), written)) continue;
    const std::uint32_t end = s.target_chunk + s.chunks;
    const bool covers = s.target_chunk <= written.first && end >= written.first + written.count;
    if (s.target == writer.target && covers) return true;
    if (same_cell(s.target, writer.target)) return false;
  }
  return writer.target == Buffer::kScratch;
}

void find_reduces(const Schedule& schedule, Fusions* fusions) {
  for (std::uint32_t i = 0; i + 1 < schedule.steps.size(); ++i) {
    const Step& recv = schedule.steps[i];
    const Step& reduce = schedule.steps[i + 1];
    if (recv.kind != StepKind::kRecv || recv.target != Buffer::kScratch) continue;
    if (reduce.kind != StepKind::kReduce || reduce.source != Buffer::kScratch || reduce.target == Buffer::kScratch ||
        reduce.operand == Buffer::kScratch || reduce.source_range() != recv.target_range()) {
      continue;
    }
    if (dead_but_for(schedule, i, i + 1)) fusions->reduce[i] = i + 1;
  }
}

void find_forwards(const Schedule& schedule, Fusions* fusions) {
  for (std::uint32_t j = 0; j < schedule.steps.size(); ++j) {
    const Step& send = schedule.steps[j];
    if (send.kind != StepKind::kSend || send.dependencies != 1) continue;
    const std::uint32_t i = schedule.dependencies_of(send)[0];
    const Step& made = schedule.steps[i];
    const bool arrives = schedule::is_recv(made.kind) || (i > 0 && fusions->reduce[i - 1] == i);
    if (!arrives || made.target_range() != send.source_range() || made.target != send.source) continue;
    if (fusions->forward[i].send == kNone) fusions->forward[i] = {j, dead_but_for(schedule, i, j)};
  }
}

}  // namespace

Fusions find_fusions(const Schedule& schedule) {
  Fusions fusions;
  fusions.forward.resize(schedule.steps.size());
  fusions.reduce.assign(schedule.steps.size(), kNone);
  find_reduces(schedule, &fusions);
  find_forwards(schedule, &fusions);
  return fusions;
}

}  // namespace tutti::internal::executor
