#include "executor/lane_runner.h"

#include <algorithm>
#include <utility>

namespace tutti::internal::executor {
namespace {

using schedule::Buffer;
using schedule::Step;
using schedule::StepKind;

bool would_send_zcopy(const transport::LaneTraits& traits, const transport::Source& source, std::size_t n) {
  return n >= traits.zcopy_any_bytes || (n >= traits.zcopy_bytes && source.region != 0);
}

}  // namespace

std::uint32_t LaneRunner::count_slices(const Operation& op) {
  const Plan& plan = *op.plan;
  if (!plan.schedule.sliceable || plan.slice_chunk_bytes == 0) return 1;
  // A slice of a chunk depends only on that chunk: if ranks count slices differently, the additional ones are empty.
  if (op.table != nullptr) {
    const std::size_t slice = op.whole_piece(plan.slice_chunk_bytes);
    return static_cast<std::uint32_t>((op.table->largest + slice - 1) / slice);
  }
  const std::size_t slice_bytes = plan.slice_chunk_bytes * plan.schedule.shape.chunks_per_block();
  return static_cast<std::uint32_t>((op.block_elements * op.element_bytes + slice_bytes - 1) / slice_bytes);
}

void LaneRunner::begin(const Operation& op) {
  const Plan& plan = *op.plan;
  op_ = &op;
  status_ = {};
  slices_ = std::max<std::uint32_t>(1, count_slices(op));
  const std::size_t lines =
      schedule::Layout::elements_of_lines(op.element_bytes) * plan.schedule.shape.chunks_per_block();
  slice_elements_ = (op.block_elements + slices_ - 1) / slices_;
  if (slices_ > 1) slice_elements_ = (slice_elements_ + lines - 1) / lines * lines;
  if (op.table != nullptr) slice_elements_ = slices_ > 1 ? op.whole_piece(plan.slice_chunk_bytes) : SIZE_MAX;
  open_slices_ = 0;
  next_lane_ = 0;
  states_.resize(std::max(states_.size(), std::size_t{kWindow} * plan.schedule.steps.size()));
  marks_.begin(states_.size());
  lanes_left_.assign(kWindow, 0);
  cursors_.assign(plan.lanes.size(), {});
  for (std::size_t i = 0; i < plan.lanes.size(); ++i) {
    const Lane& lane = plan.lanes[i];
    if (lane.link == nullptr) continue;
    if (lane.sends) {
      cursors_[i].released = lane.link->send().taken();
    } else {
      cursors_[i].opened = lane.link->recv().consumed();
    }
  }
  in_place_ = op.in_place();
  // In place, the target was read before, so its lines are in the cache: a store past the cache would first write them
  // back.
  streaming_ = op.bytes >= tuning_.streaming_bytes && !in_place_;
  direct_puts_ = op.bytes >= tuning_.direct_put_bytes;
  combines_ = op.combines();
}

// As if it had run by lanes until now: nothing that lanes add is open.
void LaneRunner::take_over(const Operation& op, std::uint32_t index, std::size_t done) {
  begin(op);
  direct_puts_ = false;
  current_slice_ = 0;
  open_slice(0);
  for (std::uint32_t i = 0; i < index; ++i) {
    StepState& state = state_of(0, i);
    state.done = state.size;
    if (op.plan->schedule.steps[i].kind == StepKind::kSend) state.marked = state.size;
    marks_.leave_out(i);
  }
  state_of(0, index).done = done;
  const FusedReduce& fused_reduce = op.plan->fused_reduce[index];
  if (fused_reduce.reduce != kNone) state_of(0, fused_reduce.reduce).done = done;
  for (std::size_t i = 0; i < op.plan->lanes.size(); ++i) {
    const Lane& lane = op.plan->lanes[i];
    if (!lane.sends) {
      const bool moved = std::find(lane.steps.begin(), lane.steps.end(), index) != lane.steps.end();
      if (moved && lane.link != nullptr) note_unproven(lane, index, state_of(0, index));
      continue;
    }
    // The stream position when the operation began.
    for (const std::uint32_t step : lane.steps) cursors_[i].released -= state_of(0, step).done;
  }
}

// Slice s may begin when all lanes have left slice s - kWindow, whose states it reuses.
bool LaneRunner::open_slice(std::uint32_t slice) {
  if (slice < open_slices_) return true;
  if (lanes_left_[slice % kWindow] != 0) return false;
  open_states(slice);
  if (marks_.keeps()) marks_.reset(place_of(slice, 0), op_->plan->schedule.steps.size());
  if (direct_puts_) advertise_buffers(slice);
  lanes_left_[slice % kWindow] = static_cast<std::uint32_t>(op_->plan->lanes.size());
  open_slices_ = slice + 1;
  return true;
}

void LaneRunner::open_states(std::uint32_t slice) {
  if (op_->table != nullptr) {
    return open_states(slice, schedule::TableLayout(op_->table->places, slice * slice_elements_, slice_elements_));
  }
  const std::size_t begin = std::min(op_->block_elements, slice * slice_elements_);
  const std::size_t extent = std::min(slice_elements_, op_->block_elements - begin);
  open_states(slice,
              schedule::Layout(op_->plan->schedule.shape, op_->block_elements, op_->element_bytes, begin, extent));
}

template <class AnyLayout>
void LaneRunner::open_states(std::uint32_t slice, const AnyLayout& layout) {
  const std::vector<Step>& steps = op_->plan->schedule.steps;
  for (std::uint32_t i = 0; i < steps.size(); ++i) {
    const auto [at, size] = locate(layout, steps[i]);
    state_of(slice, i) = {at, size, 0, 0};
  }
}

// Lets peers write results directly to their final position: for plain receives into the output that wait for nothing.
// Runs before any step of the slice sends, so that a peer that combines this rank's contribution already knows where to
// put the result.
void LaneRunner::advertise_buffers(std::uint32_t slice) {
  const Plan& plan = *op_->plan;
  for (std::size_t i = 0; i < plan.lanes.size(); ++i) {
    const Lane& lane = plan.lanes[i];
    if (lane.link == nullptr || lane.sends || !lane.link->recv().traits().takes_advertisements) continue;
    // If push() does not put directly, a sender that only forwards does not use advertisements.
    if (!combines_ && !lane.link->recv().traits().puts_directly) continue;
    for (const std::uint32_t index : lane.steps) {
      const Step& step = plan.schedule.steps[index];
      const StepState& state = state_of(slice, index);
      const bool stores = step.kind == StepKind::kRecv && step.target == Buffer::kOutput && state.size != 0;
      if (stores && waits_for_nobody(index)) {
        lane.link->recv().advertise(cursors_[i].opened, source_of(*op_, step.target, step.target_chunk),
                                    state.begin.target, state.size);
      }
      cursors_[i].opened += state.size;
    }
  }
}

bool LaneRunner::finished() const {
  const Plan& plan = *op_->plan;
  for (std::size_t i = 0; i < plan.lanes.size(); ++i) {
    if (cursors_[i].slice < slices_) return false;
    if (plan.lanes[i].sends && cursors_[i].release_slice < slices_) return false;
  }
  return true;
}

// If a look ends early, the next one begins with the following lane, so that no lane is neglected.
template <bool kTraced>
bool LaneRunner::move_lanes(std::size_t most) {
  const auto lanes = static_cast<std::uint32_t>(op_->plan->lanes.size());
  bytes_left_ = most;
  bool moved = false;
  for (std::uint32_t i = 0; i < lanes && bytes_left_ != 0; ++i) {
    const std::uint32_t lane = next_lane_;
    next_lane_ = lane + 1 == lanes ? 0 : lane + 1;
    moved |= advance_lane<kTraced>(lane);
  }
  return moved;
}

Result<Progress> LaneRunner::look(std::size_t most) {
  const bool moved = marks_.keeps() ? move_lanes<true>(most) : move_lanes<false>(most);
  if (!status_.is_ok()) [[unlikely]]
    return status_;
  if (moved) {
    waiter_.progress();
    return Progress::kMoved;
  }
  return finished() ? Progress::kDone : Progress::kIdle;
}

Status LaneRunner::run() {
  for (;;) {
    auto progress = look(SIZE_MAX);
    if (!progress.is_ok() || *progress == Progress::kDone) return progress.status();
    if (*progress == Progress::kMoved) continue;
    if (Status s = waiter_.idle(); !s.is_ok()) return s;
  }
}

Result<Progress> LaneRunner::advance(std::int64_t now_ns) {
  auto progress = look(tuning_.turn_bytes);
  if (!progress.is_ok() || *progress != Progress::kIdle) return progress;
  Status status = waiter_.look(now_ns);
  return status.is_ok() ? progress : Result<Progress>(std::move(status));
}

void LaneRunner::list(std::vector<Waiting::For>* lanes) const {
  for (std::size_t i = 0; i < op_->plan->lanes.size(); ++i) {
    const Lane& lane = op_->plan->lanes[i];
    if (lane.link == nullptr) continue;
    const std::uint32_t slice = lane.sends ? cursors_[i].release_slice : cursors_[i].slice;
    // A lane at a slice that is not open waits for other lanes: its peer may owe nothing, and may have left.
    if (slice < open_slices_) lanes->push_back({lane.link, lane.peer, lane.sends, !lane.sends});
  }
}

template <bool kTraced>
bool LaneRunner::advance_lane(std::uint32_t index) {
  const Lane& lane = op_->plan->lanes[index];
  Cursor& c = cursors_[index];
  bool moved = false;
  while (c.slice < slices_ && open_slice(c.slice)) {
    const std::uint32_t step = lane.steps[c.position];
    StepState& state = state_of(c.slice, step);
    if (state.done < state.size) {
      current_slice_ = c.slice;
      const std::size_t before = state.done;
      moved |= kTraced ? work_traced(index, step, state) : work(index, step, state);
      bytes_left_ -= std::min(bytes_left_, state.done - before);
      // Moves one piece, then the other lanes continue, unless the step is done.
      if (state.done < state.size) break;
    }
    if (++c.position == lane.steps.size()) {
      c.position = 0;
      if (!lane.sends) leave_slice(c.slice);
      ++c.slice;
      moved = true;
    }
    if (bytes_left_ == 0) break;
  }
  // Lanes served earlier in this look may wait for this release. Without it the thread would sleep for long, because it
  // has already seen the peer's action.
  if (lane.sends && release_sends(index)) moved = true;
  return moved;
}

// How far step `index` may go: up to the first byte that a step on which it depends has not finished.
std::size_t LaneRunner::ready_limit(std::uint32_t index, const StepState& state) const {
  const Plan& plan = *op_->plan;
  std::size_t limit = state.size;
  const StepState* slice = &states_[(current_slice_ % kWindow) * plan.schedule.steps.size()];
  for (const Dependence& d : dependences_of(plan, index)) {
    const StepState& other = slice[d.step];
    const bool sends = plan.schedule.steps[d.step].kind == StepKind::kSend;
    std::size_t passed = sends ? other.marked : other.done;
    if (passed == other.size) continue;
    if (d.whole) return 0;
    if (!sends) passed -= other.marked;
    const std::size_t begin = d.later_in_target ? state.begin.target : state.begin.source;
    const std::size_t frontier = (d.earlier_in_target ? other.begin.target : other.begin.source) + passed;
    limit = std::min(limit, frontier > begin ? frontier - begin : 0);
  }
  return limit;
}

bool LaneRunner::work(std::uint32_t lane_index, std::uint32_t index, StepState& state) {
  const Lane& lane = op_->plan->lanes[lane_index];
  const Step& step = op_->plan->schedule.steps[index];
  // Bytes are handled in whole elements; all sizes are multiples of one.
  const std::size_t limit = op_->whole(ready_limit(index, state));
  if (limit <= state.done) return false;
  if (schedule::is_local(step.kind)) return local_some(step, state, limit);
  if (lane.sends) return send_some(lane, step, state, limit);
  return receive_some(lane, index, state, limit);
}

bool LaneRunner::send_some(const Lane& lane, const Step& step, StepState& state, std::size_t limit) {
  const transport::Source& source = source_of(*op_, step.source, step.source_chunk);
  transport::SendLane& out = lane.link->send();
  // Zero copy needs long messages: it is better to wait for more data than to copy little. But not without limit: later
  // data may depend on the present data, so it is sent when nothing moves.
  if (limit < state.size && !waiter_.stalled() && would_send_zcopy(out.traits(), source, state.size) &&
      !would_send_zcopy(out.traits(), source, limit - state.done)) {
    return false;
  }
  // A message that is cut only because of its length would cut elements whose size does not divide that length.
  if (op_->odd_elements) limit = std::min(limit, op_->whole(state.done + transport::kWholeMessageBytes));
  const std::size_t n =
      out.push(fingerprint_of(*op_, step), source, state.begin.source + state.done, limit - state.done);
  state.done += n;
  return n > 0;
}

// Reads completed(): marks the sends whose sources the transport will not read again.
bool LaneRunner::release_sends(std::uint32_t index) {
  const Lane& lane = op_->plan->lanes[index];
  Cursor& c = cursors_[index];
  if (c.release_slice == slices_) return false;
  bool released = false;
  const std::uint64_t completed = lane.link->send().completed();
  while (c.release_slice < std::min(slices_, open_slices_)) {
    StepState& state = state_of(c.release_slice, lane.steps[c.release_position]);
    const std::size_t before = std::exchange(state.marked, std::min<std::uint64_t>(state.done, completed - c.released));
    released = released || state.marked != before;
    if (state.marked < state.size) break;
    // A step of no bytes is released when the lane has passed it.
    if (c.release_slice == c.slice && c.release_position == c.position) break;
    c.released += state.size;
    if (++c.release_position == lane.steps.size()) {
      c.release_position = 0;
      leave_slice(c.release_slice);
      ++c.release_slice;
      released = true;
    }
  }
  return released;
}

bool LaneRunner::local_some(const Step& step, StepState& state, std::size_t limit) {
  const std::size_t n = std::min(limit - state.done, op_->whole_piece(tuning_.piece_bytes));
  run_local(*op_, step, state.begin.after(state.done), n, streaming_ && step.target == Buffer::kOutput);
  state.done += n;
  return true;
}

bool LaneRunner::receive_some(const Lane& lane, std::uint32_t index, StepState& state, std::size_t limit) {
  const Step& step = op_->plan->schedule.steps[index];
  transport::RecvLane& in = lane.link->recv();
  const StepOffsets at = state.begin.after(state.done);
  const std::size_t wanted = limit - state.done;
  transport::RecvLane::View view;
  const transport::Fingerprint& fingerprint = fingerprint_of(*op_, step);
  if (step.kind == StepKind::kRecv && in.traits().pulls && !forwards_in_slots(index, state.size)) {
    const std::size_t n = in.pull(target_at(*op_, step, at), wanted, &view.fingerprint);
    if (n > 0) {
      // Checked before the step counts as done: other lanes would combine the data and send it to ranks that then
      // succeed.
      if (view.fingerprint != fingerprint) [[unlikely]]
        return fail(mismatch(step, view.fingerprint));
      state.done += n;
      note_unproven(lane, index, state);
      return true;
    }
  }
  view = in.peek(wanted);
  if (view.size == 0) return false;
  // A different call may send less than an element of this one.
  if (view.fingerprint != fingerprint) [[unlikely]] {
    return fail(mismatch(step, view.fingerprint));
  }
  std::size_t n = 0;
  // A lane that has cut an element shows more of it at the next peek(), if more has arrived.
  for (std::size_t shown = 0; n == 0; shown = view.size, view = in.peek(wanted)) {
    if (view.size <= shown) return false;
    n = op_->whole(std::min({view.size, wanted, op_->whole_piece(tuning_.piece_bytes)}));
    if (n != 0) break;
  }
  if (op_->plan->fused_reduce[index].reduce != kNone && fused_reduce_some(lane, index, state, view, n)) return true;
  if (direct_put_some(lane, index, state, view, n)) return true;
  bool moved = false;
  if (forwards_in_slots(index, state.size) && forward_some(lane, index, state, view, n, &moved)) return moved;
  store(*op_, step, at, view.data, n, streaming_ && step.target == Buffer::kOutput);
  if (!in.consume(n)) return false;
  state.done += n;
  note_unproven(lane, index, state);
  return true;
}

// Whether received data should go through an outgoing slot: the step is forwarded, and either the value need not be
// stored, or the forwarding send would not use zero copy for the stored value.
bool LaneRunner::forwards_in_slots(std::uint32_t index, std::size_t bytes) const {
  const Forward& forward = op_->plan->forward[index];
  if (forward.send == kNone) return false;
  const Step& step = op_->plan->schedule.steps[index];
  const transport::Source& stored = source_of(*op_, step.target, step.target_chunk);
  const transport::LaneTraits& out = op_->plan->lanes[forward.lane].link->send().traits();
  return out.slots && (forward.only || !would_send_zcopy(out, stored, bytes));
}

// The reduction behind the receive may have used the same bytes.
void LaneRunner::note_unproven(const Lane& lane, std::uint32_t index, StepState& state) {
  state.marked = std::min(state.done, lane.link->recv().unproven());
  const std::uint32_t reduce = op_->plan->fused_reduce[index].reduce;
  if (reduce == kNone) return;
  StepState& reduced = state_of(current_slice_, reduce);
  const std::size_t proven = state.done - state.marked;
  reduced.marked = reduced.done - std::min(reduced.done, proven);
}

// Combines received data with the local operand at once, if the following step may already write that far.
bool LaneRunner::fused_reduce_some(const Lane& lane, std::uint32_t index, StepState& state,
                                   const transport::RecvLane::View& view, std::size_t n) {
  const FusedReduce& fused_reduce = op_->plan->fused_reduce[index];
  const Cursor& c = cursors_[fused_reduce.lane];
  StepState& reduced = state_of(current_slice_, fused_reduce.reduce);
  if (c.slice != current_slice_ || op_->plan->lanes[fused_reduce.lane].steps[c.position] != fused_reduce.reduce)
    return false;
  if (reduced.done != state.done) return false;
  // As if the bytes had been stored and proven: the other step waits only for that.
  state.done += n;
  const std::size_t unproven = std::exchange(state.marked, 0);
  const std::size_t limit = op_->whole(ready_limit(fused_reduce.reduce, reduced));
  state.done -= n;
  state.marked = unproven;
  if (limit < reduced.done + n) return false;
  const Step& reduce = op_->plan->schedule.steps[fused_reduce.reduce];
  const StepOffsets at = reduced.begin.after(reduced.done);
  combine(*op_, fused(reduce), target_at(*op_, reduce, at), operand_at(*op_, reduce, at), view.data, n,
          streaming_ && op_->divisor == 0);
  if (!lane.link->recv().consume(n)) return true;
  state.done += n;
  reduced.done += n;
  note_unproven(lane, index, state);
  return true;
}

// Receives (and combines) directly into the outgoing slot of the step that forwards the value. Returns whether it
// handled the data; *moved: whether a slot was free.
bool LaneRunner::forward_some(const Lane& lane, std::uint32_t index, StepState& state,
                              const transport::RecvLane::View& view, std::size_t n, bool* moved) {
  const Forward& forward = op_->plan->forward[index];
  const Lane& out_lane = op_->plan->lanes[forward.lane];
  const Cursor& c = cursors_[forward.lane];
  StepState& send = state_of(current_slice_, forward.send);
  // Only if the send is at the head of its lane and has sent everything before this piece.
  if (c.slice != current_slice_ || out_lane.steps[c.position] != forward.send || send.done != state.done) return false;
  transport::SendLane& out = out_lane.link->send();
  const Step& step = op_->plan->schedule.steps[index];
  std::span<std::byte> room = out.reserve(n);
  if (room.empty()) {
    // Waiting for a slot is better than going through memory, but not without limit: when nothing moves, the value is
    // stored, which needs no slot.
    return !waiter_.stalled();
  }
  while (op_->whole(room.size()) == 0) room = out.reserve(n);  // room grows with each call
  n = op_->whole(std::min(n, room.size()));
  if (!lane.link->recv().proves(n)) return false;  // another push may follow instead of the commit
  const StepOffsets at = state.begin.after(state.done);
  if (n >= out.traits().streamed_bytes) {
    stream_forward(step, at, room.first(n), view.data, !forward.only);
  } else {
    if (step.kind == StepKind::kRecvReduce) {
      combine(*op_, step, room.data(), source_at(*op_, step, at), view.data, n, false);
    } else {
      copy_bytes(room.data(), view.data, n);
    }
    if (!forward.only) {
      std::byte* target = target_at(*op_, step, at);
      if (streaming_ && step.target == Buffer::kOutput) {
        copy_streaming(target, room.data(), n);
      } else {
        copy_bytes(target, room.data(), n);
      }
    }
  }
  // Only now is it certain that the bytes are what was sent.
  if (!lane.link->recv().consume(n)) return true;
  out.commit(fingerprint_of(*op_, op_->plan->schedule.steps[forward.send]), n);
  send.done += n;
  state.done += n;
  state.marked = 0;
  *moved = true;
  return true;
}

// The part of forward_some() that moves the bytes, if `room` is best written past the cache. If the step combines and
// its target needs the value, the value is made in the target, through the cache, because it is read there at once.
void LaneRunner::stream_forward(const Step& step, const StepOffsets& at, std::span<std::byte> room,
                                const std::byte* received, bool stores) const {
  std::byte* const target = target_at(*op_, step, at);
  const std::byte* value = received;
  if (step.kind == StepKind::kRecvReduce) {
    std::byte* const made = stores ? target : room.data();
    combine(*op_, step, made, source_at(*op_, step, at), received, room.size(), !stores && op_->divisor == 0);
    if (!stores) return;
    value = target;
  } else if (stores) {
    (streaming_ && step.target == Buffer::kOutput ? &copy_streaming : &copy_bytes)(target, received, room.size());
  }
  copy_streaming(room.data(), value, room.size());
}

}  // namespace tutti::internal::executor
