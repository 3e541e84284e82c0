#include "mutants.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace tutti::internal::schedule {
namespace {

// Steps with their dependencies spelled out, easy to cut up.
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
  m.schedule.uses_scratch = true;  // no easy ways out
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
std::vector<std::pair<const char*, Step>> altered(const Step& s, std::int32_t ranks) {
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
  add("range", [](Step& t) { ++t.chunk; });
  add("range", [](Step& t) { ++t.chunks; });
  add("range", [](Step& t) { --t.chunks; });
  if (s.chunk > 0) add("range", [](Step& t) { --t.chunk; });
  if (s.chunks > 1) add("range", [](Step& t) { ++t.chunk, --t.chunks; });
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
  return result;
}

bool ordered_lane(const Step& a, const Step& b) {
  if (is_local(a.kind) || is_local(b.kind)) return is_local(a.kind) && is_local(b.kind);
  return is_recv(a.kind) && is_recv(b.kind) && a.peer == b.peer;
}

bool covers(const Step& s, std::uint32_t c) {
  return c >= s.chunk && c < s.chunk + s.chunks;
}

// before[i * chunks + c][j * chunks + c]: step i is done with chunk c before step j touches its chunk.
class Closure {
 public:
  explicit Closure(const Schedule& s) : chunks_(s.shape.chunks), nodes_(s.steps.size() * chunks_) {
    before_.assign(nodes_, std::vector<char>(nodes_, 0));
    for (std::uint32_t j = 0; j < s.steps.size(); ++j) {
      for (std::uint32_t c = 0; c < chunks_; ++c) {
        if (!covers(s.steps[j], c)) continue;
        for (const std::uint32_t i : s.dependencies_of(s.steps[j])) {
          if (covers(s.steps[i], c)) put_before(node(i, c), node(j, c));
        }
        for (std::uint32_t i = 0; i < j; ++i) {
          if (!ordered_lane(s.steps[i], s.steps[j])) continue;
          for (std::uint32_t d = 0; d < chunks_; ++d) {
            if (covers(s.steps[i], d)) put_before(node(i, d), node(j, c));
          }
        }
      }
    }
  }
  [[nodiscard]] bool before(std::uint32_t i, std::uint32_t j, std::uint32_t c) const {
    return before_[node(j, c)][node(i, c)] != 0;
  }

 private:
  [[nodiscard]] std::size_t node(std::uint32_t i, std::uint32_t c) const { return std::size_t{i} * chunks_ + c; }
  // Steps come in an order in which all that is before `early` is known. Rows hold what is before them.
  void put_before(std::size_t early, std::size_t late) {
    before_[late][early] = 1;
    for (std::size_t k = 0; k < nodes_; ++k) before_[late][k] |= before_[early][k];
  }
  std::uint32_t chunks_;
  std::size_t nodes_;
  std::vector<std::vector<char>> before_;
};

// Whether the steps use the same memory of chunk c and one writes it.
bool conflict(const Schedule& s, const Step& a, const Step& b, std::uint32_t c, bool in_place) {
  if (!covers(a, c) || !covers(b, c)) return false;
  const bool one = in_place && s.shape.in_input(s.rank, c) && s.shape.in_output(s.rank, c);
  const auto no_op = [&](const Step& x) { return one && x.kind == StepKind::kCopy && x.source == Buffer::kInput; };
  if (no_op(a) || no_op(b)) return false;
  const auto place = [&](Buffer x) { return one && x == Buffer::kInput ? Buffer::kOutput : x; };
  const auto touches = [&](const Step& x, Buffer p) {
    return (reads_source(x.kind) && place(x.source) == p) || (reads_operand(x.kind) && place(x.operand) == p) ||
           (writes_target(x.kind) && place(x.target) == p);
  };
  return (writes_target(a.kind) && touches(b, place(a.target))) ||
         (writes_target(b.kind) && touches(a, place(b.target)));
}

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

bool conflicts_ordered(const Schedule& s, const Mutant& m) {
  const Closure closure(m.schedule);
  for (std::uint32_t i = 0; i < m.original.size(); ++i) {
    for (std::uint32_t j = i + 1; j < m.original.size(); ++j) {
      for (std::uint32_t c = 0; c < s.shape.chunks; ++c) {
        const Step& a = m.schedule.steps[i];
        const Step& b = m.schedule.steps[j];
        if (!conflict(s, a, b, c, true) && !conflict(s, a, b, c, false)) continue;
        if (m.original[i] > m.original[j] || !closure.before(i, j, c)) return false;
      }
    }
  }
  return true;
}

// The only change is in one step's source or operand, between input and output, and of its chunks the output is never
// anything but a copy of the input.
bool reads_a_copy(const Schedule& s, const Mutant& m) {
  const bool source = m.what == "source";
  if ((!source && m.what != "operand") || m.schedule.steps.size() != s.steps.size()) return false;
  for (std::size_t i = 0; i < s.steps.size(); ++i) {
    const Step& changed = m.schedule.steps[i];
    const Buffer now = source ? changed.source : changed.operand;
    const Buffer before = source ? s.steps[i].source : s.steps[i].operand;
    if (now == before) continue;
    if (now == Buffer::kScratch || before == Buffer::kScratch) return false;
    for (const Step& w : s.steps) {
      const bool meets = w.chunk < changed.chunk + changed.chunks && changed.chunk < w.chunk + w.chunks;
      const bool copies = w.kind == StepKind::kCopy && w.source == Buffer::kInput;
      if (meets && writes_target(w.kind) && w.target == Buffer::kOutput && !copies) return false;
    }
  }
  return true;
}

}  // namespace

std::vector<Mutant> mutants_of(const Schedule& schedule) {
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
    for (const auto& [what, step] : altered(steps[i].step, schedule.shape.ranks)) {
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
  if (!mutant.original.empty()) return same_lanes(schedule, mutant) && conflicts_ordered(schedule, mutant);
  return reads_a_copy(schedule, mutant);
}

}  // namespace tutti::internal::schedule
