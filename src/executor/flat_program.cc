#include "executor/flat_program.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

namespace tutti::internal::executor {
namespace {

using schedule::Schedule;
using schedule::Step;
using schedule::StepKind;

class Flattening {
 public:
  explicit Flattening(const Schedule& schedule) : schedule_(schedule), fusions_(find_fusions(schedule)) {
    program_.shape = schedule.shape;
    program_.scratch_chunks = schedule.scratch_chunks;
    program_.sliceable = schedule.sliceable;
    number_lanes();
    fuse();
  }

  FlatProgram write() && {
    number_strands();
    place_steps();
    for (std::uint32_t i = 0; i < size(); ++i) {
      if (part_of_[i] == i) write_step(i);
    }
    return std::move(program_);
  }

 private:
  [[nodiscard]] std::uint32_t size() const { return static_cast<std::uint32_t>(schedule_.steps.size()); }
  // Of the local steps.
  [[nodiscard]] std::uint32_t local_lane() const { return static_cast<std::uint32_t>(program_.lanes.size()); }

  void number_lanes() {
    std::map<std::pair<std::int32_t, bool>, std::uint32_t> known;
    for (const Step& s : schedule_.steps) {
      if (schedule::is_local(s.kind)) {
        lane_of_.push_back(kNone);
        continue;
      }
      const bool sends = s.kind == StepKind::kSend;
      const auto [it, is_new] = known.try_emplace({s.peer, sends}, local_lane());
      if (is_new) program_.lanes.push_back({s.peer, sends});
      lane_of_.push_back(it->second);
    }
    single_chunks_.assign(program_.lanes.size(), true);
    for (std::uint32_t i = 0; i < size(); ++i) {
      if (lane_of_[i] != kNone && schedule_.steps[i].chunks != 1) single_chunks_[lane_of_[i]] = false;
    }
    std::replace(lane_of_.begin(), lane_of_.end(), kNone, local_lane());
  }

  // part_of_[i]: the step that step i is a part of, itself or a receive.
  void fuse() {
    part_of_.resize(size());
    std::iota(part_of_.begin(), part_of_.end(), 0U);
    passed_on_.resize(size());
    merged_.resize(program_.lanes.size() + 1);
    std::iota(merged_.begin(), merged_.end(), 0U);
    for (std::uint32_t i = 0; i < size(); ++i) {
      if (part_of_[i] != i) continue;
      const std::uint32_t reduce = fusions_.reduce[i];
      if (reduce != kNone) part_of_[reduce] = i;
      if (!schedule::is_recv(schedule_.steps[i].kind)) continue;
      const Fusions::Forward& forward = fusions_.forward[reduce != kNone ? reduce : i];
      if (forward.send == kNone || !can_pass_on(i, forward.send)) continue;
      part_of_[forward.send] = i;
      passed_on_[i] = forward;
      merged_[root_of(lane_of_[forward.send])] = root_of(lane_of_[i]);
    }
  }

  // Whether step i, which receives, can be the send as well: no other step of the send's lane comes between them.
  [[nodiscard]] bool can_pass_on(std::uint32_t i, std::uint32_t send) const {
    if (!schedule_.sliceable || !single_chunks_[lane_of_[i]] || !single_chunks_[lane_of_[send]]) return false;
    for (std::uint32_t k = i + 1; k < send; ++k) {
      if (lane_of_[k] == lane_of_[send]) return false;
    }
    return true;
  }

  [[nodiscard]] std::uint32_t root_of(std::uint32_t lane) const {
    while (merged_[lane] != lane) lane = merged_[lane];
    return lane;
  }

  void number_strands() {
    strand_of_.assign(size(), kNone);
    std::vector<std::uint32_t> strand_of_root(merged_.size(), kNone);
    for (std::uint32_t i = 0; i < size(); ++i) {
      if (part_of_[i] != i) continue;
      std::uint32_t& strand = strand_of_root[root_of(lane_of_[i])];
      if (strand == kNone) strand = strands_++;
      strand_of_[i] = strand;
    }
  }

  // position_[i]: how many steps of its strand come before step i.
  void place_steps() {
    std::vector<std::uint32_t> sizes(strands_, 0);
    position_.resize(size());
    for (std::uint32_t i = 0; i < size(); ++i) {
      if (part_of_[i] == i) position_[i] = sizes[strand_of_[i]]++;
    }
    program_.first_step.assign(1, 0);
    for (const std::uint32_t of_strand : sizes) program_.first_step.push_back(program_.first_step.back() + of_strand);
    program_.steps.resize(program_.first_step.back());
  }

  void write_step(std::uint32_t i) {
    const Step s = effective(i);
    FlatStep& f = program_.steps[program_.first_step[strand_of_[i]] + position_[i]];
    if (schedule::is_recv(s.kind)) f.in = lane_of_[i];
    if (s.kind == StepKind::kSend) f.out = lane_of_[i];
    if (passed_on_[i].send != kNone) f.out = lane_of_[passed_on_[i].send];
    f.combines = s.kind == StepKind::kRecvReduce || s.kind == StepKind::kReduce;
    f.stores = schedule::writes_target(s.kind) && !passed_on_[i].only;
    f.final = s.final;
    f.reversed = s.reversed;
    f.source = s.source;
    f.operand = s.operand;
    f.target = s.target;
    f.chunks = s.chunks;
    f.source_chunk = s.source_chunk;
    f.target_chunk = s.target_chunk;
    write_waits(i, &f);
  }

  // Of each other strand, the last step that step i, or what is a part of it, depends on.
  void write_waits(std::uint32_t i, FlatStep* f) {
    std::map<std::uint32_t, std::uint32_t> steps;
    const auto add = [&](std::uint32_t step) {
      for (const std::uint32_t d : schedule_.dependencies_of(schedule_.steps[step])) {
        const std::uint32_t on = part_of_[d];
        if (strand_of_[on] == strand_of_[i]) continue;
        std::uint32_t& least = steps[strand_of_[on]];
        least = std::max(least, position_[on] + 1);
      }
    };
    add(i);
    if (fusions_.reduce[i] != kNone) add(fusions_.reduce[i]);
    add_local_order(i, &steps);
    f->first_wait = static_cast<std::uint32_t>(program_.waits.size());
    f->waits = static_cast<std::uint16_t>(steps.size());
    for (const auto& [strand, least] : steps) program_.waits.push_back({strand, least});
  }

  // Local steps do not record that they depend on each other, since they are one lane; those that are a part of a
  // receive are not in it any more.
  void add_local_order(std::uint32_t i, std::map<std::uint32_t, std::uint32_t>* steps) {
    if (!is_fused_reduce(i) && lane_of_[i] != local_lane()) return;
    for (std::uint32_t k = 0; k < i; ++k) {
      if (part_of_[k] != k || (!is_fused_reduce(k) && lane_of_[k] != local_lane())) continue;
      if (strand_of_[k] == strand_of_[i]) continue;
      bool conflicts = false;
      schedule::for_conflicts(schedule_.shape, effective(i), effective(k),
                              [&](const schedule::Conflict&) { conflicts = true; });
      std::uint32_t& least = (*steps)[strand_of_[k]];
      if (conflicts) least = std::max(least, position_[k] + 1);
      if (least == 0) steps->erase(strand_of_[k]);
    }
  }
  [[nodiscard]] bool is_fused_reduce(std::uint32_t i) const { return fusions_.reduce[i] != kNone; }
  // What step i does with what is a part of it, but for the sending.
  [[nodiscard]] Step effective(std::uint32_t i) const {
    return is_fused_reduce(i) ? fused(schedule_.steps[fusions_.reduce[i]]) : schedule_.steps[i];
  }

  const Schedule& schedule_;
  const Fusions fusions_;
  FlatProgram program_;
  std::vector<std::uint32_t> lane_of_;  // per step; that of local steps is one more than the others
  std::vector<bool> single_chunks_;     // per lane: each of its steps has one chunk
  std::vector<std::uint32_t> merged_;   // per lane: one that it is a strand with, or itself
  std::vector<std::uint32_t> part_of_;
  std::vector<Fusions::Forward> passed_on_;  // per step
  std::vector<std::uint32_t> strand_of_;     // per step that is no part of another
  std::vector<std::uint32_t> position_;
  std::uint32_t strands_ = 0;
};

}  // namespace

FlatProgram flatten(const Schedule& schedule) {
  return Flattening(schedule).write();
}

}  // namespace tutti::internal::executor
