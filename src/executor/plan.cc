#include "executor/plan.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <tuple>

namespace tutti::internal::executor {
namespace {

using schedule::Buffer;
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

bool overlap(const Step& a, const Step& b) {
  return a.chunk < b.chunk + b.chunks && b.chunk < a.chunk + a.chunks;
}

// Memory cells as the Builder counts them: an in-place call makes input and output one.
bool same_cell(Buffer a, Buffer b) {
  return (a == Buffer::kScratch) == (b == Buffer::kScratch);
}

// Whether the value that step i writes is read by nobody but `reader`, and neither stays as a result.
bool dead_but_for(const Schedule& schedule, std::uint32_t i, std::uint32_t reader) {
  const Step& writer = schedule.steps[i];
  for (std::uint32_t j = i + 1; j < schedule.steps.size(); ++j) {
    const Step& s = schedule.steps[j];
    if (!overlap(writer, s)) continue;
    if (j != reader && schedule::reads_source(s.kind) && same_cell(s.source, writer.target)) return false;
    if (j != reader && schedule::reads_operand(s.kind) && same_cell(s.operand, writer.target)) return false;
    const bool covers = s.chunk <= writer.chunk && s.chunk + s.chunks >= writer.chunk + writer.chunks;
    if (schedule::writes_target(s.kind) && s.target == writer.target && covers) return true;
    if (schedule::writes_target(s.kind) && same_cell(s.target, writer.target)) return false;
  }
  return writer.target == Buffer::kScratch;
}

void find_forwards(Plan* plan) {
  const Schedule& schedule = plan->schedule;
  plan->forward.resize(schedule.steps.size());
  for (std::uint32_t j = 0; j < schedule.steps.size(); ++j) {
    const Step& send = schedule.steps[j];
    if (send.kind != StepKind::kSend || send.dependencies != 1) continue;
    const std::uint32_t i = schedule.dependencies_of(send)[0];
    const Step& recv = schedule.steps[i];
    if (!schedule::is_recv(recv.kind) || recv.range() != send.range() || recv.target != send.source) continue;
    if (plan->forward[i].send != kNone) continue;
    plan->forward[i] = {j, plan->lane_of[j], dead_but_for(schedule, i, j)};
  }
}

// Whether two steps would touch the same memory if input and output were apart.
bool conflict_out_of_place(const Step& a, const Step& b) {
  for (const Buffer buffer : {Buffer::kInput, Buffer::kOutput, Buffer::kScratch}) {
    if (schedule::writes(a, buffer) && (schedule::reads(b, buffer) || schedule::writes(b, buffer))) return true;
    if (schedule::reads(a, buffer) && schedule::writes(b, buffer)) return true;
  }
  return false;
}

void find_in_place_dependencies(Plan* plan) {
  const Schedule& schedule = plan->schedule;
  plan->in_place_only.resize(schedule.dependencies.size());
  for (const Step& s : schedule.steps) {
    for (std::uint32_t i = 0; i < s.dependencies; ++i) {
      const Step& on = schedule.steps[schedule.dependencies[s.first_dependency + i]];
      plan->in_place_only[s.first_dependency + i] = !conflict_out_of_place(on, s);
    }
  }
}

std::size_t below(std::size_t bytes) {
  return bytes == 0 ? 0 : bytes - 1;
}

void find_fused_reduces(Plan* plan) {
  const Schedule& schedule = plan->schedule;
  plan->fused_reduce.resize(schedule.steps.size());
  for (std::uint32_t i = 0; i + 1 < schedule.steps.size(); ++i) {
    const Step& recv = schedule.steps[i];
    const Step& reduce = schedule.steps[i + 1];
    if (recv.kind != StepKind::kRecv || recv.target != Buffer::kScratch) continue;
    if (reduce.kind != StepKind::kReduce || reduce.source != Buffer::kScratch || reduce.target == Buffer::kScratch ||
        reduce.operand == Buffer::kScratch || reduce.range() != recv.range()) {
      continue;
    }
    if (dead_but_for(schedule, i, i + 1)) plan->fused_reduce[i] = {i + 1, plan->lane_of[i + 1]};
  }
}

void write_in_order(Plan* plan) {
  for (std::uint32_t i = 0; i < plan->schedule.steps.size(); ++i) {
    InOrderStep s{plan->schedule.steps[i], plan->link_of[i], nullptr, nullptr, i};
    if (s.step.kind == StepKind::kSend) s.send = &plan->link_of[i]->send();
    if (schedule::is_recv(s.step.kind)) s.recv = &plan->link_of[i]->recv();
    if (plan->fused_reduce[i].reduce != kNone) {
      const Step& reduce = plan->schedule.steps[++i];
      s.step.kind = StepKind::kRecvReduce;
      s.step.source = reduce.operand;
      s.step.target = reduce.target;
      s.step.final = reduce.final;
    }
    plan->in_order.push_back(s);
  }
}

}  // namespace

std::unique_ptr<Plan> make_plan_from_links(std::string algorithm, Schedule schedule,
                                           std::vector<transport::Link*> links, std::size_t slice_chunk_bytes) {
  auto plan = std::make_unique<Plan>();
  plan->identity = identify(algorithm, schedule, slice_chunk_bytes);
  plan->algorithm = std::move(algorithm);
  plan->schedule = std::move(schedule);
  plan->link_of = std::move(links);
  plan->slice_chunk_bytes = slice_chunk_bytes;
  sort_into_lanes(plan.get());
  find_in_place_dependencies(plan.get());
  find_forwards(plan.get());
  find_fused_reduces(plan.get());
  write_in_order(plan.get());
  const std::set<transport::Link*> distinct(plan->link_of.begin(), plan->link_of.end());
  std::copy_if(distinct.begin(), distinct.end(), std::back_inserter(plan->links),
               [](auto* link) { return link != nullptr; });
  plan->in_order_bytes = plan->in_order_region_bytes = SIZE_MAX;
  for (const Lane& lane : plan->lanes) {
    if (lane.link == nullptr || !lane.sends) continue;
    const transport::LaneTraits& traits = lane.link->send().traits();
    plan->in_order_bytes = std::min(plan->in_order_bytes, traits.piece_bytes);
    // In order, nothing watches what the peer still reads: stay below the bounds of zero copy.
    plan->in_order_bytes = std::min(plan->in_order_bytes, below(traits.zcopy_any_bytes));
    plan->in_order_region_bytes = std::min(plan->in_order_region_bytes, below(traits.zcopy_bytes));
  }
  plan->in_order_region_bytes = std::min(plan->in_order_region_bytes, plan->in_order_bytes);
  plan->small_bytes = std::min(plan->in_order_region_bytes, plan->slice_chunk_bytes);
  for (const Step& s : plan->schedule.steps) {
    plan->max_step_chunks = std::max<std::uint32_t>(plan->max_step_chunks, s.chunks);
  }
  return plan;
}

}  // namespace tutti::internal::executor
