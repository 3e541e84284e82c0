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
  s.chunk = c.first;
  s.chunks = static_cast<std::uint16_t>(c.count);
  return s;
}

}  // namespace

Builder::Builder(const Shape& shape, std::int32_t rank)
    : shape_(shape), rank_(rank), where_(shape.chunks, Where::kNowhere), cells_(std::size_t{2} * shape.chunks) {
  schedule_.shape = shape;
  schedule_.rank = rank;
  for (std::uint32_t c = 0; c < shape.chunks; ++c) {
    if (shape.in_input(rank, c)) where_[c] = Where::kInput;
  }
}

Buffer Builder::kept_in(std::uint32_t c) const {
  return shape_.in_output(rank_, c) ? Buffer::kOutput : Buffer::kScratch;
}

Builder::Cell& Builder::cell(Buffer b, std::uint32_t c) {
  return cells_[std::size_t{2} * c + (b == Buffer::kScratch ? 1 : 0)];
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
  cell.readers.push_back(index);
}

void Builder::write(std::uint32_t index, Cell& cell) {
  for (const std::uint32_t r : cell.readers) depend(index, r);
  if (cell.readers.empty() || !cell.readers_follow_writer) depend(index, cell.last_writer);
  cell.readers.clear();
  cell.readers_follow_writer = true;
  cell.last_writer = static_cast<std::int32_t>(index);
}

void Builder::add(Step step) {
  const auto index = static_cast<std::uint32_t>(schedule_.steps.size());
  schedule_.steps.push_back(step);
  pending_.clear();
  for (std::uint32_t c = step.chunk; c < step.chunk + step.chunks; ++c) {
    if (step.kind == StepKind::kCopy && step.source == Buffer::kInput) {
      // Nobody has written the chunk yet. The steps that read the input go on doing so, and only the next real
      // writer waits for them.
      Cell& both = cell(step.target, c);
      both.last_writer = static_cast<std::int32_t>(index);
      both.readers_follow_writer = both.readers.empty();
      continue;
    }
    const Cell* const updated = writes_target(step.kind) ? &cell(step.target, c) : nullptr;
    const auto read_from = [&](Buffer b) {
      if (&cell(b, c) != updated) read(index, cell(b, c));
    };
    if (reads_source(step.kind)) read_from(step.source);
    if (reads_operand(step.kind)) read_from(step.operand);
    if (updated != nullptr) write(index, cell(step.target, c));
  }
  std::sort(pending_.begin(), pending_.end());
  pending_.erase(std::unique(pending_.begin(), pending_.end()), pending_.end());
  if (pending_.size() > std::numeric_limits<std::uint16_t>::max()) return fail("too many dependencies of one step");

  Step& added = schedule_.steps.back();
  added.first_dependency = static_cast<std::uint32_t>(schedule_.dependencies.size());
  added.dependencies = static_cast<std::uint16_t>(pending_.size());
  schedule_.dependencies.insert(schedule_.dependencies.end(), pending_.begin(), pending_.end());
  if (reads(step, Buffer::kScratch) || writes(step, Buffer::kScratch)) schedule_.uses_scratch = true;
  const std::uint32_t per_block = shape_.chunks_per_block();
  if (step.chunk / per_block != (step.chunk + step.chunks - 1) / per_block) schedule_.sliceable = false;
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
      c, [&](std::uint32_t i) { return where_[i]; },
      [&](ChunkRange run) {
        const Where where = where_[run.first];
        if (where == Where::kNowhere) return fail(fmt::format("send of chunk {}, which has no value", run.first));
        add(make_step(StepKind::kSend, peer, run, buffer_of(where), Buffer::kOutput));
      });
}

void Builder::recv(std::int32_t peer, ChunkRange c) {
  if (!check(peer, c, "recv")) return;
  for_runs(
      c, [&](std::uint32_t i) { return kept_in(i); },
      [&](ChunkRange run) {
        const Buffer target = kept_in(run.first);
        add(make_step(StepKind::kRecv, peer, run, Buffer::kInput, target));
        std::fill_n(where_.begin() + run.first, run.count, where_of<Where>(target));
      });
}

void Builder::recv_reduce(std::int32_t peer, ChunkRange c, Completes completes) {
  if (!check(peer, c, "recv_reduce")) return;
  for_runs(
      c, [&](std::uint32_t i) { return std::pair(where_[i], kept_in(i)); },
      [&](ChunkRange run) {
        const Where where = where_[run.first];
        if (where == Where::kNowhere) {
          return fail(fmt::format("recv_reduce into chunk {}, which has no value", run.first));
        }
        const Buffer target = kept_in(run.first);
        Step s = make_step(StepKind::kRecvReduce, peer, run, buffer_of(where), target);
        s.final = completes == Completes::kYes;
        add(s);
        std::fill_n(where_.begin() + run.first, run.count, where_of<Where>(target));
      });
}

void Builder::copy_to_output(ChunkRange c) {
  if (!check_chunks(c, "copy_to_output")) return;
  const auto movable = [&](std::uint32_t i) { return where_[i] == Where::kInput && kept_in(i) == Buffer::kOutput; };
  for_runs(c, movable, [&](ChunkRange run) {
    if (!movable(run.first)) return;
    add(make_step(StepKind::kCopy, -1, run, Buffer::kInput, Buffer::kOutput));
    std::fill_n(where_.begin() + run.first, run.count, Where::kOutput);
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

void Builder::reduce_from_scratch(ChunkRange c, Completes completes) {
  if (!check_chunks(c, "reduce_from_scratch")) return;
  for_runs(
      c, [&](std::uint32_t i) { return std::pair(where_[i], kept_in(i)); },
      [&](ChunkRange run) {
        const Where where = where_[run.first];
        if (kept_in(run.first) != Buffer::kOutput || where == Where::kNowhere) {
          return fail(fmt::format("reduce_from_scratch of chunk {}, which has no value in the output", run.first));
        }
        Step s = make_step(StepKind::kReduce, -1, run, Buffer::kScratch, Buffer::kOutput);
        s.operand = buffer_of(where);
        s.final = completes == Completes::kYes;
        add(s);
        std::fill_n(where_.begin() + run.first, run.count, Where::kOutput);
      });
}

Result<Schedule> Builder::finish() {
  const auto owed_from = [&](std::uint32_t c) {
    const bool owed = kept_in(c) == Buffer::kOutput && where_[c] != Where::kOutput;
    return std::pair(owed, owed ? where_[c] : Where::kOutput);
  };
  for_runs(ChunkRange{0, shape_.chunks}, owed_from, [&](ChunkRange run) {
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
