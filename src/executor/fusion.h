// Which steps of a schedule can be taken as one, whatever runs them: decided once, by what the steps read and write.
#pragma once

#include <cstdint>
#include <vector>

#include "schedule/schedule.h"

namespace tutti::internal::executor {

inline constexpr std::uint32_t kNone = UINT32_MAX;

struct Fusions {
  // Of a step that makes a value: the send that passes it on, if it depends on this one alone. The first of several.
  struct Forward {
    std::uint32_t send = kNone;
    // Nothing else reads the value, and it is overwritten later or not owed: if the whole of it is passed on, it need
    // not be stored.
    bool only = false;
  };
  std::vector<Forward> forward;  // per step; local steps have none but behind a fused reduction's receive
  // Of a receive into scratch: the kReduce right behind it, if nothing else reads the scratch. They can combine what
  // arrives with the local operand at once.
  std::vector<std::uint32_t> reduce;  // per step; kNone: none
};

Fusions find_fusions(const schedule::Schedule& schedule);

// The one step that a receive into scratch and this reduction are together: what was the source is what is received.
inline schedule::Step fused(const schedule::Step& reduce) {
  schedule::Step s = reduce;
  s.kind = schedule::StepKind::kRecvReduce;
  s.source = reduce.operand;
  s.source_chunk = reduce.target_chunk;
  s.reversed = !reduce.reversed;
  return s;
}

}  // namespace tutti::internal::executor
