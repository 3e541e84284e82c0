// Races. The rule is local to a rank and a chunk. A step that writes memory must wait for its last writer and for all
// readers since; a step that reads it must wait for the last writer. It waits by a dependency, or because both run in
// one ordered lane. Waiting is transitive chunk by chunk: a writer that waits for the readers (which wait for the last
// writer) has also waited for the last writer.
//
// Orders that follow only from messages (the peer answers only after ...) are ignored: the Builder does not need them,
// and the rule without them is simpler and stricter.
#include <fmt/core.h>

#include <vector>

#include "schedule/verify_parts.h"

namespace tutti::internal::schedule::parts {
namespace {

class RaceCheck {
 public:
  RaceCheck(const Schedule& schedule, bool in_place, std::size_t& accesses)
      : schedule_(schedule),
        in_place_(in_place),
        accesses_(accesses),
        cells_(std::size_t{2} * schedule.shape.chunks + schedule.scratch_chunks),
        waited_for_(schedule.steps.size(), kNobody) {}

  Status run() {
    for (std::uint32_t i = 0; i < schedule_.steps.size(); ++i) {
      const Step& s = schedule_.steps[i];
      for (const std::uint32_t d : schedule_.dependencies_of(s)) waited_for_[d] = i;
      // In an in-place call there is nothing to copy.
      if (copies_onto_itself(s)) continue;
      for (std::uint32_t k = 0; k < s.chunks; ++k) {
        const char* why = access(i, s, k);
        if (why != nullptr) {
          return at_step(schedule_, i, fmt::format("{} step {}{}", why, other_, in_place_ ? ", in place" : ""));
        }
      }
    }
    return Status::ok();
  }

 private:
  static constexpr std::uint32_t kNobody = 0xffffffff;

  struct Cell {
    std::uint32_t writer = kNobody;
    std::uint32_t readers = kNobody;  // since the writer: the last one, in readers_
  };
  struct Reader {
    std::uint32_t step = 0;
    std::uint32_t before = kNobody;  // the one before it of the same cell, in readers_
  };

  [[nodiscard]] bool copies_onto_itself(const Step& s) const {
    return in_place_ && s.kind == StepKind::kCopy && s.source == Buffer::kInput && s.target == Buffer::kOutput &&
           s.source_chunk == s.target_chunk;
  }

  Cell& cell(Buffer b, std::uint32_t c) {
    const std::size_t chunks = schedule_.shape.chunks;
    if (b == Buffer::kScratch) return cells_[2 * chunks + c];
    const bool same = in_place_ && b == Buffer::kInput && schedule_.shape.in_output(schedule_.rank, c);
    return cells_[(same || b == Buffer::kOutput ? chunks : 0) + c];
  }

  bool ordered(std::uint32_t earlier, std::uint32_t later) {
    other_ = earlier;
    return waited_for_[earlier] == later || same_ordered_lane(schedule_.steps[earlier], schedule_.steps[later]);
  }

  const char* read(std::uint32_t i, Cell& cell) {
    ++accesses_;
    if (cell.writer != kNobody && !ordered(cell.writer, i)) return "reads without waiting for the write of";
    readers_.push_back({i, cell.readers});
    cell.readers = static_cast<std::uint32_t>(readers_.size() - 1);
    return nullptr;
  }

  const char* write(std::uint32_t i, Cell& cell) {
    ++accesses_;
    bool waits_for_reader = false;
    for (std::uint32_t at = cell.readers; at != kNobody; at = readers_[at].before) {
      const std::uint32_t r = readers_[at].step;
      if (r == i) continue;
      if (!ordered(r, i)) return "overwrites without waiting for the read of";
      waits_for_reader = true;
    }
    if (cell.writer != kNobody && !waits_for_reader && !ordered(cell.writer, i)) {
      return "overwrites without waiting for the write of";
    }
    cell.readers = kNobody;
    cell.writer = i;
    return nullptr;
  }

  // Reads a chunk, unless the step updates that memory.
  const char* read_from(std::uint32_t i, const Touched& place, std::uint32_t k, const Cell* updated) {
    Cell& from = cell(place.buffer, place.range.first + k);
    if (in_place_ && place.buffer == Buffer::kInput && from.writer != kNobody) {
      other_ = from.writer;
      return "reads an input that is overwritten by";
    }
    return &from == updated ? nullptr : read(i, from);
  }

  // Checks the step's k-th chunks. Returns nullptr, or the error; then other_ is the other step.
  const char* access(std::uint32_t i, const Step& s, std::uint32_t k) {
    Cell* const updated = writes_target(s.kind) ? &cell(s.target, s.target_chunk + k) : nullptr;
    const char* why = nullptr;
    for_touched(s, [&](const Touched& place) {
      if (why == nullptr && !place.is_written) why = read_from(i, place, k, updated);
    });
    if (why == nullptr && updated != nullptr) why = write(i, *updated);
    return why;
  }

  const Schedule& schedule_;
  const bool in_place_;
  std::size_t& accesses_;
  std::vector<Cell> cells_;
  std::vector<Reader> readers_;            // of all cells
  std::vector<std::uint32_t> waited_for_;  // per step, the last step that has listed it
  std::uint32_t other_ = 0;
};

}  // namespace

Status check_races(std::span<const Schedule> schedules, Proof& proof, Pause& pause) {
  for (const Schedule& schedule : schedules) {
    for (const bool in_place : {false, true}) {
      if (in_place && !info_of(schedule.shape.collective).input_is_output) continue;
      Status status = RaceCheck(schedule, in_place, proof.accesses).run();
      if (status.is_ok()) status = pause.after(schedule.steps.size() + schedule.shape.chunks);
      if (!status.is_ok()) return status;
    }
  }
  return Status::ok();
}

}  // namespace tutti::internal::schedule::parts
