#include "executor/steps.h"

namespace tutti::internal::executor {

void combine_by_user(const Operation& op, const schedule::Step& s, std::byte* target, const std::byte* local,
                     const std::byte* received, std::size_t bytes) {
  const std::byte* const earlier = s.reversed ? received : local;
  const std::byte* const later = s.reversed ? local : received;
  reduction::combine(*op.user, op.datatype, op.element_bytes, target, earlier, later, bytes);
}

void run_local(const Operation& op, const schedule::Step& s, const StepOffsets& at, std::size_t bytes, bool streaming) {
  std::byte* target = target_at(op, s, at);
  const std::byte* source = source_at(op, s, at);
  if (s.kind == schedule::StepKind::kReduce) {
    combine(op, s, target, source, operand_at(op, s, at), bytes, false);
  } else if (target != source) {
    if (streaming) {
      copy_streaming(target, source, bytes);
    } else {
      copy_bytes(target, source, bytes);
    }
  }
}

Status mismatch_at(const Operation& op, const schedule::Step& step, const transport::Fingerprint& theirs,
                   bool* unexplained) {
  const transport::Fingerprint& ours = fingerprint_of(op, step);
  // Data with another number is left over from the calls that differ; a check names no call.
  *unexplained = same_call(ours, theirs) || ours.sequence != theirs.sequence || is_check(ours) || is_check(theirs);
  return mismatch(op.plan->schedule.rank, ours, op.plan->identity, step.peer, theirs);
}

}  // namespace tutti::internal::executor
