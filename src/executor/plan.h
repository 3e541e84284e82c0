// A schedule prepared for this rank's links: the lane of each step, and the steps that can be fused. Made once per
// (algorithm, root) and kept; contains no sizes and no addresses.
//
// Threads: made and used by the one thread that runs the communicator's operations; immutable once made.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "executor/fingerprint.h"
#include "executor/fusion.h"
#include "schedule/schedule.h"
#include "transport/transport.h"

namespace tutti::internal::executor {

// The steps of one (peer, direction), or the local steps (link == null), in schedule order.
struct Lane {
  transport::Link* link = nullptr;
  std::int32_t peer = -1;
  bool sends = false;
  std::vector<std::uint32_t> steps;
};

// What a receiving step can do besides storing: give each piece to the send that forwards it.
struct Forward {
  std::uint32_t send = kNone;  // the step that forwards the received data, if it depends only on this step
  std::uint32_t lane = kNone;  // that step's lane
  // No other step reads the value, and it is overwritten later or not owed: if all of it is forwarded in flight it need
  // not be stored.
  bool only = false;
};

// What a step that receives into scratch can do instead: combine the received data with the local operand at once, like
// the kReduce right behind it, if that step may already write its target.
struct FusedReduce {
  std::uint32_t reduce = kNone;  // that step, if no other step reads the scratch
  std::uint32_t lane = kNone;    // the lane of the local steps
};

// A step of the in-order program. Fused reductions are one step: a receive into scratch and the kReduce behind it have
// become one kRecvReduce (every send before has copied its source, so the target is free).
struct InOrderStep {
  schedule::Step step;
  transport::Link* link = nullptr;      // null for local steps
  transport::SendLane* send = nullptr;  // if it sends
  transport::RecvLane* recv = nullptr;  // if it receives
  std::uint32_t index = 0;              // of the step in the schedule; for a fused reduction, of its receive
};

// What a step waits for: the bytes of another step at its own positions, or all of the other step.
struct Dependence {
  std::uint32_t step = 0;        // the other
  bool later_in_target = false;  // the bytes are those of this step's target, otherwise of its source
  bool earlier_in_target = false;
  bool in_place_only = false;  // only if input and output are one memory
  bool whole = false;          // the steps share no memory: this one waits until the other is done
};

struct Plan {
  PlanIdentity identity;
  schedule::Schedule schedule;
  std::vector<Lane> lanes;
  std::vector<std::uint32_t> lane_of;           // per step
  std::vector<transport::Link*> link_of;        // per step; null for local steps
  std::vector<Forward> forward;                 // per step
  std::vector<Dependence> dependences;          // of all steps, in order
  std::vector<std::uint32_t> first_dependence;  // per step, and one more
  std::vector<FusedReduce> fused_reduce;        // per step
  std::vector<InOrderStep> in_order;            // for small messages
  std::vector<transport::Link*> links;          // without duplicates
  std::uint32_t max_step_chunks = 0;            // of any step
  transport::Reading reading{};                 // for sends of this rank, in steps of up to most_read_bytes
  std::size_t read_in_turns_bytes = SIZE_MAX;   // steps from this size on are, if ranks are oversubscribed
  std::size_t most_read_bytes = SIZE_MAX;
  bool rewrites_in_place = false;  // if input and output are one memory, it overwrites input that it has sent
  std::size_t in_order_bytes = 0;  // messages up to this size may run in schedule order, if none uses zero copy
  std::size_t no_zcopy_bytes = 0;  // messages up to this size may run in schedule order in every operation
  std::size_t small_bytes = 0;     // whole vectors up to this size run in schedule order
  // Chunks larger than this are cut (if the schedule allows it) and the schedule runs on slices. The same on every
  // rank, for any links: it determines the order of bytes in the lanes.
  std::size_t slice_chunk_bytes = 0;
};

// The dependences of one step.
inline std::span<const Dependence> dependences_of(const Plan& plan, std::uint32_t step) {
  const Dependence* const all = plan.dependences.data();
  return {all + plan.first_dependence[step], all + plan.first_dependence[step + 1]};
}

// REQUIRES: link_to(peer) for every peer of the schedule; it outlives the plan.
template <class LinkTo>
std::unique_ptr<Plan> make_plan(std::string_view algorithm, schedule::Schedule schedule, LinkTo link_to,
                                std::size_t slice_chunk_bytes);

// The part of make_plan that does not depend on how links are found. `links` has one entry per step, null for local
// steps.
std::unique_ptr<Plan> make_plan_from_links(std::string_view algorithm, schedule::Schedule schedule,
                                           std::vector<transport::Link*> links, std::size_t slice_chunk_bytes);

template <class LinkTo>
std::unique_ptr<Plan> make_plan(std::string_view algorithm, schedule::Schedule schedule, LinkTo link_to,
                                std::size_t slice_chunk_bytes) {
  std::vector<transport::Link*> links;
  links.reserve(schedule.steps.size());
  for (const schedule::Step& s : schedule.steps)
    links.push_back(schedule::is_local(s.kind) ? nullptr : link_to(s.peer));
  return make_plan_from_links(algorithm, std::move(schedule), std::move(links), slice_chunk_bytes);
}

}  // namespace tutti::internal::executor
