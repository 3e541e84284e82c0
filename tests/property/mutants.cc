#include "mutants.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace tutti::internal::schedule {
namespace {

// Steps with explicit dependencies, easy to modify.
struct Loose {
  Step step;
  std::vector<std::uint32_t> after;  // original indices
  std::uint32_t original;
};

std::vector<Loose> loosen(const Schedule& s) {
  std::vector<Loose> steps;
  for (std::uint32_t i = 0; i < s.steps.size(); ++i) {
    const auto deps = s.dependencies_of(s.steps[i]);
    steps.push_back({s.steps[i], {deps.begin(), deps.end()}, i});
  }
  return steps;
}

Mutant assemble(const Schedule& from, const std::vector<Loose>& steps, std::string what, bool same_steps) {
  Mutant m{std::move(what), {}, {}};
  m.schedule.shape = from.shape;
  m.schedule.rank = from.rank;
  // No mutant is rejected only because scratch is too small.
  m.schedule.scratch_chunks = from.scratch_chunks + from.shape.chunks;
  m.schedule.sliceable = false;
  std::vector<std::uint32_t> now(from.steps.size(), 0xffffffff);
  for (std::uint32_t i = 0; i < steps.size(); ++i) {
    if (now[steps[i].original] == 0xffffffff) now[steps[i].original] = i;
  }
  for (const Loose& l : steps) {
    Step s = l.step;
    s.first_dependency = static_cast<std::uint32_t>(m.schedule.dependencies.size());
    for (const std::uint32_t d : l.after) {
      if (now[d] != 0xffffffff) m.schedule.dependencies.push_back(now[d]);
    }
    s.dependencies = static_cast<std::uint16_t>(m.schedule.dependencies.size() - s.first_dependency);
    m.schedule.steps.push_back(s);
    if (same_steps) m.original.push_back(l.original);
  }
  return m;
}

// Steps that differ from `s` in one field.
std::vector<std::pair<const char*, Step>> altered(const Step& s, std::int32_t ranks, Order order) {
  std::vector<std::pair<const char*, Step>> result;
  const auto add = [&](const char* what, auto change) {
    Step changed = s;
    change(changed);
    result.emplace_back(what, changed);
  };
  if (!is_local(s.kind)) {
    for (std::int32_t p = 0; p < ranks; ++p) {
      if (p != s.peer) add("redirect", [&](Step& t) { t.peer = p; });
    }
  }
  const auto shift = [](Step& t, std::uint32_t by, bool source, bool target) {
    if (source) t.source_chunk += by;
    if (target) t.target_chunk += by;
  };
  const bool two_places = reads_source(s.kind) && writes_target(s.kind);
  const auto add_shifts = [&](bool source, bool target) {
    const std::uint32_t lowest = std::min(source ? s.source_chunk : UINT32_MAX, target ? s.target_chunk : UINT32_MAX);
    add("range", [&](Step& t) { shift(t, 1, source, target); });
    if (lowest > 0) add("range", [&](Step& t) { shift(t, UINT32_MAX, source, target); });
  };
  add_shifts(true, true);
  if (two_places) add_shifts(true, false), add_shifts(false, true);
  add("range", [](Step& t) { ++t.chunks; });
  add("range", [](Step& t) { --t.chunks; });
  if (s.chunks > 1) add("range", [&](Step& t) { shift(t, 1, true, true), --t.chunks; });
  for (int b = 0; b < kBuffers; ++b) {
    const auto buffer = static_cast<Buffer>(b);
    if (reads_source(s.kind) && buffer != s.source) add("source", [&](Step& t) { t.source = buffer; });
    if (reads_operand(s.kind) && buffer != s.operand) add("operand", [&](Step& t) { t.operand = buffer; });
    if (writes_target(s.kind) && buffer != s.target) add("target", [&](Step& t) { t.target = buffer; });
  }
  if (is_recv(s.kind)) {
    const bool plain = s.kind == StepKind::kRecv;
    for (const Buffer b : {Buffer::kInput, Buffer::kOutput, Buffer::kScratch}) {
      add("kind", [&](Step& t) {
        t.kind = plain ? StepKind::kRecvReduce : StepKind::kRecv;
        t.source = b;
      });
      if (!plain) break;
    }
  }
  if (s.kind == StepKind::kReduce) add("kind", [](Step& t) { t.kind = StepKind::kCopy; });
  if (s.kind == StepKind::kCopy) {
    for (const Buffer b : {Buffer::kInput, Buffer::kOutput, Buffer::kScratch}) {
      add("kind", [&](Step& t) {
        t.kind = StepKind::kReduce;
        t.operand = b;
      });
    }
  }
  add("final", [](Step& t) { t.final = !t.final; });
  const bool combines = s.kind == StepKind::kRecvReduce || s.kind == StepKind::kReduce;
  if (combines && order == Order::kRanks) add("order", [](Step& t) { t.reversed = !t.reversed; });
  return result;
}

bool ordered_lane(const Step& a, const Step& b) {
  if (is_local(a.kind) || is_local(b.kind)) return is_local(a.kind) && is_local(b.kind);
  return is_recv(a.kind) && is_recv(b.kind) && a.peer == b.peer;
}

// The memory of a chunk.
struct CellId {
  Buffer buffer;
  std::uint32_t chunk;
  bool operator==(const CellId&) const = default;
};

bool is_one_memory(const Schedule& s, bool in_place) {
  return in_place && info_of(s.shape.collective).input_is_output;
}

CellId cell_of(const Schedule& s, Buffer b, std::uint32_t c, bool in_place) {
  const bool one = is_one_memory(s, in_place) && b == Buffer::kInput && s.shape.in_output(s.rank, c);
  return {one ? Buffer::kOutput : b, c};
}

// Whether step a's k-th chunks and step b's l-th are the same memory, which one of them writes.
bool conflict(const Schedule& s, const Step& a, std::uint32_t k, const Step& b, std::uint32_t l, bool in_place) {
  const auto no_op = [&](const Step& x) {
    return is_one_memory(s, in_place) && x.kind == StepKind::kCopy && x.source == Buffer::kInput &&
           x.target == Buffer::kOutput && x.source_chunk == x.target_chunk;
  };
  if (no_op(a) || no_op(b)) return false;
  bool found = false;
  for_touched(a, [&](const Touched& p) {
    for_touched(b, [&](const Touched& q) {
      const bool same =
          cell_of(s, p.buffer, p.range.first + k, in_place) == cell_of(s, q.buffer, q.range.first + l, in_place);
      found |= same && (p.is_written || q.is_written);
    });
  });
  return found;
}

// Whether the chunk is among the step's k-th, and whether it reads it.
struct Use {
  bool any = false;
  bool reads = false;
};
Use use_of(const Schedule& s, std::uint32_t step, std::uint32_t k, Buffer buffer, std::uint32_t chunk) {
  Use use;
  for_touched(s.steps[step], [&](const Touched& p) {
    if (cell_of(s, p.buffer, p.range.first + k, true) != cell_of(s, buffer, chunk, true)) return;
    use.any = true;
    use.reads |= !p.is_written;
  });
  return use;
}

// before(i, k, j, l): step i is done with its k-th chunks before step j touches its l-th.
class Closure {
 public:
  explicit Closure(const Schedule& s) {
    for (const Step& step : s.steps) {
      first_.push_back(nodes_);
      nodes_ += step.chunks;
    }
    before_.assign(nodes_, std::vector<char>(nodes_, 0));
    for (std::uint32_t j = 0; j < s.steps.size(); ++j) {
      for (std::uint32_t l = 0; l < s.steps[j].chunks; ++l) put_all_before(s, j, l);
    }
  }
  [[nodiscard]] bool before(std::uint32_t i, std::uint32_t k, std::uint32_t j, std::uint32_t l) const {
    return before_[first_[j] + l][first_[i] + k] != 0;
  }

 private:
  void put_all_before(const Schedule& s, std::uint32_t j, std::uint32_t l) {
    for (const std::uint32_t i : s.dependencies_of(s.steps[j])) {
      for (std::uint32_t k = 0; k < s.steps[i].chunks; ++k) {
        // Like in place, where most memory is shared.
        if (conflict(s, s.steps[i], k, s.steps[j], l, false) || meets_in_place(s, i, k, j, l))
          put_before(first_[i] + k, first_[j] + l);
      }
    }
    for (std::uint32_t i = 0; i < j; ++i) {
      if (!ordered_lane(s.steps[i], s.steps[j])) continue;
      for (std::uint32_t k = 0; k < s.steps[i].chunks; ++k) put_before(first_[i] + k, first_[j] + l);
    }
  }
  // Also a copy that does nothing in place: steps that depend on it wait for it.
  static bool meets_in_place(const Schedule& s, std::uint32_t i, std::uint32_t k, std::uint32_t j, std::uint32_t l) {
    bool found = false;
    for_touched(s.steps[i], [&](const Touched& p) {
      for_touched(s.steps[j], [&](const Touched& q) {
        found |= (p.is_written || q.is_written) &&
                 cell_of(s, p.buffer, p.range.first + k, true) == cell_of(s, q.buffer, q.range.first + l, true);
      });
    });
    return found;
  }
  // Steps come in an order in which everything before `early` is known. Rows contain the steps before them.
  void put_before(std::size_t early, std::size_t late) {
    before_[late][early] = 1;
    for (std::size_t k = 0; k < nodes_; ++k) before_[late][k] |= before_[early][k];
  }
  std::vector<std::size_t> first_;  // per step: its first node
  std::size_t nodes_ = 0;
  std::vector<std::vector<char>> before_;
};

bool same_lanes(const Schedule& s, const Mutant& m) {
  for (std::uint32_t i = 0; i < m.original.size(); ++i) {
    for (std::uint32_t j = i + 1; j < m.original.size(); ++j) {
      const Step& a = s.steps[m.original[i]];
      const Step& b = s.steps[m.original[j]];
      const bool one_lane = !is_local(a.kind) && a.peer == b.peer && is_recv(a.kind) == is_recv(b.kind);
      if (one_lane && m.original[i] > m.original[j]) return false;
    }
  }
  return m.original.size() == s.steps.size();
}

bool all_ordered(const Mutant& m, const Closure& closure, std::uint32_t i, std::uint32_t j) {
  const Step& a = m.schedule.steps[i];
  const Step& b = m.schedule.steps[j];
  for (std::uint32_t k = 0; k < a.chunks; ++k) {
    for (std::uint32_t l = 0; l < b.chunks; ++l) {
      if (!conflict(m.schedule, a, k, b, l, true) && !conflict(m.schedule, a, k, b, l, false)) continue;
      if (m.original[i] > m.original[j] || !closure.before(i, k, j, l)) return false;
    }
  }
  return true;
}

bool conflicts_ordered(const Mutant& m) {
  const Closure closure(m.schedule);
  for (std::uint32_t i = 0; i < m.original.size(); ++i) {
    for (std::uint32_t j = i + 1; j < m.original.size(); ++j) {
      if (!all_ordered(m, closure, i, j)) return false;
    }
  }
  return true;
}

// The only change is in one step's source or operand, between the input and another buffer whose chunks there are
// always just a copy of the input.
bool reads_a_copy(const Schedule& s, const Mutant& m) {
  const bool source = m.what == "source";
  if ((!source && m.what != "operand") || m.schedule.steps.size() != s.steps.size()) return false;
  for (std::size_t i = 0; i < s.steps.size(); ++i) {
    const Step& changed = m.schedule.steps[i];
    const Buffer now = source ? changed.source : changed.operand;
    const Buffer before = source ? s.steps[i].source : s.steps[i].operand;
    if (now == before) continue;
    if (now != Buffer::kInput && before != Buffer::kInput) return false;
    const Buffer other = now == Buffer::kInput ? before : now;
    for (const Step& w : s.steps) {
      const ChunkRange read = source ? changed.source_range() : changed.target_range();
      const bool meets = w.target_chunk < read.first + read.count && read.first < w.target_chunk + w.chunks;
      const bool copies = w.kind == StepKind::kCopy && w.source == Buffer::kInput && w.source_chunk == w.target_chunk;
      if (meets && writes_target(w.kind) && w.target == other && !copies) return false;
    }
  }
  return true;
}

// The only change is that one local step copies one chunk more, into memory that no step reads before it is written
// again: all other steps that use it are before or behind, and the next one behind, if any, writes it.
bool copies_for_nobody(const Schedule& s, const Mutant& m) {
  if (m.what != "range" || m.schedule.steps.size() != s.steps.size()) return false;
  const Closure closure(m.schedule);
  for (std::uint32_t i = 0; i < s.steps.size(); ++i) {
    const Step& changed = m.schedule.steps[i];
    if (changed.chunks == s.steps[i].chunks) continue;
    if (changed.kind != StepKind::kCopy || changed.chunks != s.steps[i].chunks + 1) return false;
    if (changed.source_chunk != s.steps[i].source_chunk || changed.target_chunk != s.steps[i].target_chunk)
      return false;
    const std::uint32_t extra = s.steps[i].chunks;
    bool is_dead = changed.target == Buffer::kScratch;
    for (auto j = static_cast<std::uint32_t>(s.steps.size()); j-- > 0;) {
      for (std::uint32_t l = 0; l < m.schedule.steps[j].chunks && j != i; ++l) {
        if (!conflict(m.schedule, changed, extra, m.schedule.steps[j], l, true)) continue;
        if (j > i ? !closure.before(i, extra, j, l) : !closure.before(j, l, i, extra)) return false;
        // From the last to the first behind it.
        const Use use = use_of(m.schedule, j, l, changed.target, changed.target_chunk + extra);
        if (j > i && use.any) is_dead = !use.reads;
      }
    }
    if (!is_dead) return false;
  }
  return true;
}

}  // namespace

std::vector<Mutant> mutants_of(const Schedule& schedule, Order order) {
  std::vector<Mutant> mutants;
  const std::vector<Loose> steps = loosen(schedule);
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const auto at = static_cast<std::ptrdiff_t>(i);
    std::vector<Loose> m = steps;
    m.erase(m.begin() + at);
    mutants.push_back(assemble(schedule, m, "drop", false));
    m = steps;
    m.insert(m.begin() + at, steps[i]);
    mutants.push_back(assemble(schedule, m, "duplicate", false));
    for (std::size_t j = i + 1; j < steps.size(); ++j) {
      m = steps;
      std::swap(m[i], m[j]);
      mutants.push_back(assemble(schedule, m, "swap", true));
    }
    for (const auto& [what, step] : altered(steps[i].step, schedule.shape.ranks, order)) {
      m = steps;
      m[i].step = step;
      mutants.push_back(assemble(schedule, m, what, false));
    }
    for (std::size_t d = 0; d < steps[i].after.size(); ++d) {
      m = steps;
      m[i].after.erase(m[i].after.begin() + static_cast<std::ptrdiff_t>(d));
      mutants.push_back(assemble(schedule, m, "drop dependency", true));
    }
  }
  return mutants;
}

bool is_equivalent(const Schedule& schedule, const Mutant& mutant) {
  if (!mutant.original.empty()) return same_lanes(schedule, mutant) && conflicts_ordered(mutant);
  return reads_a_copy(schedule, mutant) || copies_for_nobody(schedule, mutant);
}

}  // namespace tutti::internal::schedule
