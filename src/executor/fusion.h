// Which steps of a schedule can run as one step, in every executor: decided once, from what the steps read and write.
#pragma once

#include <cstdint>
#include <vector>

#include "schedule/schedule.h"

namespace tutti::internal::executor {

inline constexpr std::uint32_t kNone = UINT32_MAX;

struct Fusions {
  // For a step that makes a value: the send that forwards it, if it depends only on this step. The first one if there
  // are several.
  struct Forward {
    std::uint32_t send = kNone;
    // No other step reads the value, and it is overwritten later or not owed: if all of it is forwarded, it need not be
    // stored.
    bool only = false;
  };
  std::vector<Forward> forward;  // per step; local steps have none, except behind the receive of a fused reduction
  // For a receive into scratch: the kReduce right behind it, if no other step reads the scratch. They can combine the
  // received data with the local operand at once.
  std::vector<std::uint32_t> reduce;  // per step; kNone: none
};

Fusions find_fusions(const schedule::Schedule& schedule);

// A receive into scratch and this reduction as one step: it receives what was the source.
inline schedule::Step fused(const schedule::Step& reduce) {
  schedule::Step s = reduce;
  s.kind = schedule::StepKind::kRecvReduce;
  s.source = reduce.operand;
  s.source_chunk = reduce.target_chunk;
  s.reversed = !reduce.reversed;
  return s;
}

}  // namespace tutti::internal::executor
