#include "executor/plan.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <tuple>

namespace tutti::internal::executor {
namespace {

using schedule::Schedule;
using schedule::Step;
using schedule::StepKind;

void sort_into_lanes(Plan* plan) {
  std::map<std::tuple<std::int32_t, bool>, std::uint32_t> index;
  const auto& steps = plan->schedule.steps;
  plan->lane_of.resize(steps.size());
  for (std::uint32_t i = 0; i < steps.size(); ++i) {
    const Step& s = steps[i];
    const bool sends = s.kind == StepKind::kSend;
    const auto [it, added] = index.try_emplace({schedule::is_local(s.kind) ? -1 : s.peer, sends},
                                               static_cast<std::uint32_t>(plan->lanes.size()));
    if (added) plan->lanes.push_back({plan->link_of[i], s.peer, sends, {}});
    plan->lanes[it->second].steps.push_back(i);
    plan->lane_of[i] = it->second;
  }
}

void find_fused(Plan* plan) {
  const Fusions fusions = find_fusions(plan->schedule);
  plan->forward.resize(plan->schedule.steps.size());
  plan->fused_reduce.resize(plan->schedule.steps.size());
  for (std::uint32_t i = 0; i < plan->schedule.steps.size(); ++i) {
    const Fusions::Forward& forward = fusions.forward[i];
    if (forward.send != kNone) plan->forward[i] = {forward.send, plan->lane_of[forward.send], forward.only};
    if (fusions.reduce[i] != kNone) plan->fused_reduce[i] = {fusions.reduce[i], plan->lane_of[fusions.reduce[i]]};
  }
}

void find_dependences(Plan* plan) {
  const Schedule& schedule = plan->schedule;
  for (const Step& s : schedule.steps) {
    plan->first_dependence.push_back(static_cast<std::uint32_t>(plan->dependences.size()));
    for (const std::uint32_t d : schedule.dependencies_of(s)) {
      const std::size_t before = plan->dependences.size();
      schedule::for_conflicts(schedule.shape, s, schedule.steps[d], [&](const schedule::Conflict& c) {
        plan->dependences.push_back({d, c.later.in_target, c.earlier.in_target, c.in_place_only});
        plan->rewrites_in_place |= c.in_place_only && schedule.steps[d].kind == StepKind::kSend;
      });
      if (plan->dependences.size() == before) plan->dependences.push_back({d, false, false, false, true});
    }
  }
  plan->first_dependence.push_back(static_cast<std::uint32_t>(plan->dependences.size()));
}

std::size_t below(std::size_t bytes) {
  return bytes == 0 ? 0 : bytes - 1;
}

void write_in_order(Plan* plan) {
  for (std::uint32_t i = 0; i < plan->schedule.steps.size(); ++i) {
    InOrderStep s{plan->schedule.steps[i], plan->link_of[i], nullptr, nullptr, i};
    if (s.step.kind == StepKind::kSend) s.send = &plan->link_of[i]->send();
    if (schedule::is_recv(s.step.kind)) s.recv = &plan->link_of[i]->recv();
    if (plan->fused_reduce[i].reduce != kNone) {
      const std::int32_t peer = s.step.peer;
      s.step = fused(plan->schedule.steps[++i]);
      s.step.peer = peer;
    }
    plan->in_order.push_back(s);
  }
}

// With reads, the reader does all of the copying and the sender is free. Two ranks on processors that are far from each
// other, time with reads over time through slots: scatter 0.9 at 128 KiB, 0.4 at 256 KiB, 0.3 at 1 MiB, 0.6 at 16 MiB;
// gather 0.9, 0.6, 0.75, but 1.05 from 4 MiB on; broadcast 0.6, 0.5, 0.7, and 1.05 at 16 MiB. On processors that are
// near a broadcast takes 1.3 times as long. Four oversubscribed ranks on two processors: scatter 0.55 at 256 KiB, 0.25
// to 0.35 from 512 KiB on; all-to-all 0.6, 0.5, and 0.8 at 16 MiB; but all-gather 1.2 at 256 KiB, broadcast 1.5 at 128
// KiB, and gather, where the root reads all, 2 from 4 MiB on. Two of them that send to each other alternately: 1.75 at
// 32 KiB, 1.2 at 64 KiB, 0.9 at 128 KiB, 0.55 from 256 to 384 KiB, 0.85 at 1 MiB.
void find_reading(Plan* plan) {
  constexpr std::size_t kMost = std::size_t{1536} << 10;
  constexpr std::size_t kLeastInTurns = std::size_t{128} << 10;
  const schedule::Shape& shape = plan->schedule.shape;
  // With two ranks, the second one gets the first one's value.
  const bool only_moves = !combines(shape.collective) || (shape.collective == Collective::kExscan && shape.ranks == 2);
  if (!only_moves) return;
  std::uint64_t sent = 0;
  std::uint64_t received = 0;
  for (const Step& s : plan->schedule.steps) {
    if (s.kind == StepKind::kSend) sent += s.chunks;
    if (schedule::is_recv(s.kind)) received += s.chunks;
  }
  // Each rank copies while its peer reads from it.
  const bool exchanges = shape.blocks > 1 && sent == received;
  plan->reading = exchanges ? transport::Reading::kAlways : transport::Reading::kFromAfar;
  const bool flows = !exchanges && !gets_own_block(shape.collective);
  if (transport::is_read_in_turns(shape.collective)) plan->read_in_turns_bytes = flows ? kLeastInTurns : 0;
  if (flows) plan->most_read_bytes = kMost;
}

}  // namespace

std::unique_ptr<Plan> make_plan_from_links(std::string_view algorithm, Schedule schedule,
                                           std::vector<transport::Link*> links, std::size_t slice_chunk_bytes) {
  auto plan = std::make_unique<Plan>();
  plan->identity = identify(algorithm, schedule, slice_chunk_bytes);
  plan->schedule = std::move(schedule);
  plan->link_of = std::move(links);
  plan->slice_chunk_bytes = slice_chunk_bytes;
  sort_into_lanes(plan.get());
  find_dependences(plan.get());
  find_fused(plan.get());
  write_in_order(plan.get());
  const std::set<transport::Link*> distinct(plan->link_of.begin(), plan->link_of.end());
  std::copy_if(distinct.begin(), distinct.end(), std::back_inserter(plan->links),
               [](auto* link) { return link != nullptr; });
  plan->in_order_bytes = plan->no_zcopy_bytes = SIZE_MAX;
  for (const Lane& lane : plan->lanes) {
    if (lane.link == nullptr) continue;
    const transport::LaneTraits& traits = lane.link->send().traits();
    if (lane.sends) plan->in_order_bytes = std::min(plan->in_order_bytes, traits.piece_bytes);
    plan->no_zcopy_bytes = std::min(plan->no_zcopy_bytes, below(traits.least_zcopy_bytes));
  }
  plan->no_zcopy_bytes = std::min(plan->no_zcopy_bytes, plan->in_order_bytes);
  plan->small_bytes = std::min(plan->no_zcopy_bytes, plan->slice_chunk_bytes);
  for (const Step& s : plan->schedule.steps)
    plan->max_step_chunks = std::max<std::uint32_t>(plan->max_step_chunks, s.chunks);
  find_reading(plan.get());
  return plan;
}

}  // namespace tutti::internal::executor
