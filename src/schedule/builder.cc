#include "schedule/builder.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>

namespace tutti::internal::schedule {
namespace {

Step make_step(StepKind kind, std::int32_t peer, ChunkRange c, Buffer source, Buffer target) {
  Step s;
  s.kind = kind;
  s.source = source;
  s.target = target;
  s.peer = peer;
  s.source_chunk = s.target_chunk = c.first;
  s.chunks = static_cast<std::uint16_t>(c.count);
  return s;
}

}  // namespace

Builder::Builder(const Shape& shape, std::int32_t rank)
    : shape_(shape),
      rank_(rank),
      input_(shape.held(info_of(shape.collective).input, rank)),
      output_(shape.held(info_of(shape.collective).output, rank)) {
  schedule_.shape = shape;
  schedule_.rank = rank;
}

Buffer Builder::kept_in(std::uint32_t c) const {
  return c - output_.first < output_.count ? Buffer::kOutput : Buffer::kScratch;
}

Builder::Where Builder::where(std::uint32_t c) const {
  if (const Where* const moved = where_.find(c); moved != nullptr) return *moved;
  return c - input_.first < input_.count ? Where::kInput : Where::kNowhere;
}

void Builder::set_where(ChunkRange c, Where where) {
  for (std::uint32_t i = 0; i < c.count; ++i) *where_.add(c.first + i, where).first = where;
}

Builder::Cell& Builder::cell(Buffer b, std::uint32_t c) {
  if (b == Buffer::kInput && info_of(shape_.collective).input_is_output) b = Buffer::kOutput;
  const auto next = static_cast<std::uint32_t>(cells_.size());
  const auto [at, is_new] = cell_at_.add(std::uint64_t{c} * kBuffers + static_cast<std::uint64_t>(b), next);
  if (is_new) cells_.emplace_back();
  return cells_[*at];
}

template <class Key, class F>
void Builder::for_runs(ChunkRange c, Key key, F f) {
  const std::uint32_t end = c.first + c.count;
  for (std::uint32_t first = c.first; first < end;) {
    std::uint32_t last = first + 1;
    while (last < end && key(last) == key(first) && last - first < std::numeric_limits<std::uint16_t>::max()) ++last;
    f(ChunkRange{first, last - first});
    first = last;
  }
}

void Builder::fail(const std::string& why) {
  if (status_.is_ok()) status_ = Status::internal(fmt::format("schedule of rank {}: {}", rank_, why));
}

bool Builder::check_chunks(ChunkRange c, const char* verb) {
  if (status_.is_ok() && (c.count == 0 || c.first >= shape_.chunks || c.count > shape_.chunks - c.first)) {
    fail(fmt::format("{} of chunks {}+{}: there are {}", verb, c.first, c.count, shape_.chunks));
  }
  return status_.is_ok();
}

bool Builder::check(std::int32_t peer, ChunkRange c, const char* verb) {
  if (check_chunks(c, verb) && (peer < 0 || peer >= shape_.ranks || peer == rank_)) {
    fail(fmt::format("{} with peer {}", verb, peer));
  }
  return status_.is_ok();
}

void Builder::depend(std::uint32_t index, std::int64_t on) {
  if (on < 0) return;
  const auto d = static_cast<std::uint32_t>(on);
  if (same_ordered_lane(schedule_.steps[d], schedule_.steps[index])) return;
  pending_.push_back(d);
}

void Builder::read(std::uint32_t index, Cell& cell) {
  depend(index, cell.last_writer);
  cell.readers.add(index);
}

void Builder::write(std::uint32_t index, Cell& cell) {
  cell.readers.for_each([&](std::uint32_t reader) { depend(index, reader); });
  if (cell.readers.empty() || !cell.readers_follow_writer) depend(index, cell.last_writer);
  cell.readers.clear();
  cell.readers_follow_writer = true;
  cell.last_writer = static_cast<std::int32_t>(index);
}

// No step has written the chunks yet. Steps may continue to read the input, and only the next real writer waits for
// them.
void Builder::touch_copied_input(std::uint32_t index, const Step& step) {
  for (std::uint32_t i = 0; i < step.chunks; ++i) {
    Cell& both = cell(step.target, step.target_chunk + i);
    both.last_writer = static_cast<std::int32_t>(index);
    both.readers_follow_writer = both.readers.empty();
  }
}

void Builder::touch(std::uint32_t index, const Step& step) {
  for (std::uint32_t i = 0; i < step.chunks; ++i) {
    Cell* const updated = writes_target(step.kind) ? &cell(step.target, step.target_chunk + i) : nullptr;
    for_touched(step, [&](const Touched& place) {
      Cell& touched = cell(place.buffer, place.range.first + i);
      if (!place.is_written && &touched != updated) read(index, touched);
    });
    if (updated != nullptr) write(index, *updated);
  }
}

void Builder::add(const Step& step) {
  const auto index = static_cast<std::uint32_t>(schedule_.steps.size());
  schedule_.steps.push_back(step);
  pending_.clear();
  const bool copies_input = step.kind == StepKind::kCopy && step.source == Buffer::kInput;
  if (copies_input && step.source_chunk == step.target_chunk && step.target == Buffer::kOutput &&
      info_of(shape_.collective).input_is_output) {
    touch_copied_input(index, step);
  } else {
    touch(index, step);
  }
  if (next_waits_ && index > 0) depend(index, std::int64_t{index} - 1);
  next_waits_ = false;
  std::sort(pending_.begin(), pending_.end());
  pending_.erase(std::unique(pending_.begin(), pending_.end()), pending_.end());
  if (pending_.size() > std::numeric_limits<std::uint16_t>::max()) return fail("too many dependencies of one step");

  Step& added = schedule_.steps.back();
  added.first_dependency = static_cast<std::uint32_t>(schedule_.dependencies.size());
  added.dependencies = static_cast<std::uint16_t>(pending_.size());
  schedule_.dependencies.insert(schedule_.dependencies.end(), pending_.begin(), pending_.end());
  for_touched(step, [&](const Touched& place) {
    if (place.buffer == Buffer::kScratch)
      schedule_.scratch_chunks = std::max(schedule_.scratch_chunks, place.range.first + place.range.count);
    if (!shape_.in_one_block(place.range)) schedule_.sliceable = false;
  });
}

namespace {
// Where enumerates kNowhere, then the buffers in their order.
template <class W>
Buffer buffer_of(W where) {
  return static_cast<Buffer>(static_cast<int>(where) - 1);
}
template <class W>
W where_of(Buffer b) {
  return static_cast<W>(static_cast<int>(b) + 1);
}
}  // namespace

void Builder::send(std::int32_t peer, ChunkRange c) {
  if (!check(peer, c, "send")) return;
  for_runs(
      c, [&](std::uint32_t i) { return where(i); },
      [&](ChunkRange run) {
        const Where from = where(run.first);
        if (from == Where::kNowhere) return fail(fmt::format("send of chunk {}, which has no value", run.first));
        add(make_step(StepKind::kSend, peer, run, buffer_of(from), Buffer::kOutput));
      });
}

void Builder::recv(std::int32_t peer, ChunkRange c) {
  if (!check(peer, c, "recv")) return;
  for_runs(
      c, [&](std::uint32_t i) { return kept_in(i); },
      [&](ChunkRange run) {
        const Buffer target = kept_in(run.first);
        add(make_step(StepKind::kRecv, peer, run, Buffer::kInput, target));
        set_where(run, where_of<Where>(target));
      });
}

void Builder::recv_reduce(std::int32_t peer, ChunkRange c, Completes completes) {
  if (!check(peer, c, "recv_reduce")) return;
  for_runs(
      c, [&](std::uint32_t i) { return std::pair(where(i), kept_in(i)); },
      [&](ChunkRange run) {
        const Where from = where(run.first);
        if (from == Where::kNowhere) {
          return fail(fmt::format("recv_reduce into chunk {}, which has no value", run.first));
        }
        const Buffer target = kept_in(run.first);
        Step s = make_step(StepKind::kRecvReduce, peer, run, buffer_of(from), target);
        s.reversed = peer < rank_;
        s.final = completes == Completes::kYes;
        add(s);
        set_where(run, where_of<Where>(target));
      });
}

void Builder::copy_to_output(ChunkRange c) {
  if (!check_chunks(c, "copy_to_output")) return;
  const auto movable = [&](std::uint32_t i) { return where(i) == Where::kInput && kept_in(i) == Buffer::kOutput; };
  for_runs(c, movable, [&](ChunkRange run) {
    if (!movable(run.first)) return;
    add(make_step(StepKind::kCopy, -1, run, Buffer::kInput, Buffer::kOutput));
    set_where(run, Where::kOutput);
  });
}

void Builder::recv_to_scratch(std::int32_t peer, ChunkRange c) {
  if (!check(peer, c, "recv_to_scratch")) return;
  for_runs(
      c, [&](std::uint32_t i) { return kept_in(i); },
      [&](ChunkRange run) {
        if (kept_in(run.first) != Buffer::kOutput) return fail("recv_to_scratch of a chunk that is kept in scratch");
        add(make_step(StepKind::kRecv, peer, run, Buffer::kInput, Buffer::kScratch));
      });
}

void Builder::recv_reduce_to_scratch(std::int32_t peer, ChunkRange c) {
  if (!check(peer, c, "recv_reduce_to_scratch")) return;
  for_runs(
      c, [&](std::uint32_t i) { return kept_in(i); },
      [&](ChunkRange run) {
        if (kept_in(run.first) != Buffer::kOutput)
          return fail("recv_reduce_to_scratch of a chunk that is kept in scratch");
        add(make_step(StepKind::kRecvReduce, peer, run, Buffer::kScratch, Buffer::kScratch));
      });
}

void Builder::reduce_from_scratch(ChunkRange c, ScratchComes comes, Completes completes) {
  if (!check_chunks(c, "reduce_from_scratch")) return;
  for_runs(
      c, [&](std::uint32_t i) { return std::pair(where(i), kept_in(i)); },
      [&](ChunkRange run) {
        const Where from = where(run.first);
        if (kept_in(run.first) != Buffer::kOutput || from == Where::kNowhere) {
          return fail(fmt::format("reduce_from_scratch of chunk {}, which has no value in the output", run.first));
        }
        Step s = make_step(StepKind::kReduce, -1, run, Buffer::kScratch, Buffer::kOutput);
        s.operand = buffer_of(from);
        s.reversed = comes == ScratchComes::kLast;
        s.final = completes == Completes::kYes;
        add(s);
        set_where(run, Where::kOutput);
      });
}

void Builder::add_at(StepKind kind, std::int32_t peer, At source, At target, std::uint32_t chunks, Buffer operand) {
  constexpr std::uint32_t kMost = std::numeric_limits<std::uint16_t>::max();
  if (chunks > kMost) {
    add_at(kind, peer, source, target, kMost, operand);
    return add_at(kind, peer, {source.buffer, source.chunk + kMost}, {target.buffer, target.chunk + kMost},
                  chunks - kMost, operand);
  }
  Step s = make_step(kind, peer, {target.chunk, chunks}, source.buffer, target.buffer);
  s.source_chunk = source.chunk;
  s.operand = operand;
  s.reversed = kind == StepKind::kRecvReduce && peer < rank_;
  const auto inside = [&](const Touched& place) {
    const bool scratch = place.buffer == Buffer::kScratch;
    const ChunkRange held = place.buffer == Buffer::kInput ? input_ : output_;
    if (!scratch && (place.range.first < held.first || place.range.first + chunks > held.first + held.count))
      fail(fmt::format("chunks {}+{} of a buffer that has {}+{}", place.range.first, chunks, held.first, held.count));
    // A chunk in another part of a block has another size.
    if (place.range.first % shape_.chunks_per_block() != target.chunk % shape_.chunks_per_block())
      fail("the source's chunks are other parts of a block than the target's");
    if (place.is_written && !scratch) {
      for (std::uint32_t i = 0; i < chunks; ++i)
        *where_.add(place.range.first + i, Where::kOutput).first = Where::kOutput;
    }
  };
  if (chunks == 0) fail("a step of no chunks");
  if (!is_local(kind) && (peer < 0 || peer >= shape_.ranks || peer == rank_))
    fail(fmt::format("a step with peer {}", peer));
  if (status_.is_ok()) for_touched(s, inside);
  if (status_.is_ok()) add(s);
}

void Builder::send_from(std::int32_t peer, At source, std::uint32_t chunks) {
  add_at(StepKind::kSend, peer, source, {Buffer::kOutput, source.chunk}, chunks, Buffer::kOutput);
}
void Builder::recv_into(std::int32_t peer, At target, std::uint32_t chunks) {
  add_at(StepKind::kRecv, peer, {Buffer::kInput, target.chunk}, target, chunks, Buffer::kOutput);
}
void Builder::recv_reduce_into(std::int32_t peer, At source, At target, std::uint32_t chunks) {
  add_at(StepKind::kRecvReduce, peer, source, target, chunks, Buffer::kOutput);
}
void Builder::copy(At source, At target, std::uint32_t chunks) {
  add_at(StepKind::kCopy, -1, source, target, chunks, Buffer::kOutput);
}
void Builder::reduce(At source, Buffer operand, At target, std::uint32_t chunks) {
  add_at(StepKind::kReduce, -1, source, target, chunks, operand);
}

Result<Schedule> Builder::finish() {
  const auto owed_from = [&](std::uint32_t c) {
    const bool owed = kept_in(c) == Buffer::kOutput && where(c) != Where::kOutput;
    return std::pair(owed, owed ? where(c) : Where::kOutput);
  };
  for_runs(output_, owed_from, [&](ChunkRange run) {
    const auto [owed, from] = owed_from(run.first);
    if (!owed) return;
    if (from == Where::kNowhere)
      return fail(fmt::format("chunk {} belongs to the output and never gets a value", run.first));
    add(make_step(StepKind::kCopy, -1, run, buffer_of(from), Buffer::kOutput));
  });
  if (!status_.is_ok()) return status_;
  return std::move(schedule_);
}

}  // namespace tutti::internal::schedule
