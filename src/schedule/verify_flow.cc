// The symbolic run, without any buffering: a chunk is sent in the same instant in which it is received, when both the
// sender's and the receiver's dependencies allow it. Actors are the lanes: one for each pair of ranks and direction,
// and one per rank for local steps. An actor runs until it must wait for a step of its own rank; progress of that step
// wakes it.
#include <fmt/core.h>

#include <vector>

#include "schedule/trees.h"
#include "schedule/verify_parts.h"

namespace tutti::internal::schedule::parts {
namespace {

constexpr std::uint32_t kNothing = 0xffffffff;

// Step indices of one rank and kind of lane, sorted by peer, in order for each peer.
struct Lanes {
  std::vector<std::uint32_t> steps;
  std::vector<std::uint32_t> next;  // per peer: position in steps of the head
  std::vector<std::uint32_t> end;   // per peer

  template <class Wanted>
  Lanes(const Schedule& s, std::size_t peers, Wanted wanted) : next(peers, 0), end(peers, 0) {
    const auto peer = [](const Step& step) { return static_cast<std::size_t>(step.peer < 0 ? 0 : step.peer); };
    std::uint32_t total = 0;
    for (const Step& step : s.steps) {
      if (wanted(step.kind)) ++end[peer(step)];
    }
    for (std::size_t p = 0; p < peers; ++p) {
      next[p] = total;
      total += end[p];
      end[p] = next[p];
    }
    steps.resize(total);
    for (std::uint32_t i = 0; i < s.steps.size(); ++i) {
      if (wanted(s.steps[i].kind)) steps[end[peer(s.steps[i])]++] = i;
    }
  }

  [[nodiscard]] bool done(std::size_t peer) const { return next[peer] == end[peer]; }
  // REQUIRES: not done(peer).
  [[nodiscard]] std::uint32_t head(std::size_t peer) const { return steps[next[peer]]; }
};

class Flow {
 public:
  Flow(std::span<const Schedule> schedules, Order order, Proof& proof, Pause& pause)
      : schedules_(schedules),
        order_(order),
        shape_(schedules.front().shape),
        ranks_(schedules.size()),
        proof_(proof),
        pause_(pause),
        trees_(static_cast<std::uint32_t>(ranks_)),
        actor_next_(ranks_ * ranks_ + ranks_, kNothing) {
    std::size_t steps = 0;
    std::size_t values = 0;
    for (const Schedule& s : schedules) {
      base_.push_back(steps);
      first_value_.push_back(values);
      values += std::size_t{2} * shape_.chunks + s.scratch_chunks;
      steps += s.steps.size();
      sends_.emplace_back(s, ranks_, [](StepKind k) { return k == StepKind::kSend; });
      recvs_.emplace_back(s, ranks_, [](StepKind k) { return is_recv(k); });
      locals_.emplace_back(s, 1, [](StepKind k) { return is_local(k); });
      expand(s);
    }
    values_.resize(values);
    for (const Schedule& s : schedules) {
      const ChunkRange input = shape_.held(info_of(shape_.collective).input, s.rank);
      for (std::uint32_t c = input.first; c < input.first + input.count; ++c)
        value(rank_of(s), Buffer::kInput, c) = {static_cast<Trees::Id>(s.rank), c};
    }
    progress_.assign(steps, 0);
    waiting_.assign(steps, kNothing);
  }

  Status run() {
    for (std::size_t a = 0; a < ranks_; ++a) {
      if (!locals_[a].done(0)) ready_.push_back(ranks_ * ranks_ + a);
      for (std::size_t b = 0; b < ranks_; ++b) {
        if (!sends_[a].done(b) && !recvs_[b].done(a)) ready_.push_back(a * ranks_ + b);
      }
    }
    while (!ready_.empty() && status_.is_ok()) {
      const std::size_t actor = ready_.back();
      ready_.pop_back();
      const std::size_t before = moved_;
      if (actor < ranks_ * ranks_) {
        run_channel(actor, actor / ranks_, actor % ranks_);
      } else {
        run_local(actor, actor - ranks_ * ranks_);
      }
      if (status_.is_ok()) status_ = pause_.after(moved_ - before + 1);
    }
    if (status_.is_ok()) check_all_done();
    if (status_.is_ok()) check_outputs();
    return status_;
  }

 private:
  // The contributions, their tree, and their chunk of the vector.
  struct Value {
    Trees::Id tree = Trees::kNone;
    std::uint32_t chunk = 0;
    bool operator==(const Value&) const = default;
  };
  // A conflict of a step and a dependency, chunk by chunk: the step's k-th chunk waits for chunk k + offset of the
  // other step, if that exists. Without a conflict it waits for all chunks.
  struct Wait {
    std::uint32_t on = 0;
    std::uint32_t offset = 0;  // wraps
    std::uint32_t count = 0;
    bool whole = false;
  };

  void expand(const Schedule& s) {
    for (const Step& step : s.steps) {
      first_wait_.push_back(waits_.size());
      for (const std::uint32_t d : s.dependencies_of(step)) {
        const std::size_t before = waits_.size();
        for_conflicts(shape_, step, s.steps[d], [&](const Conflict& c) {
          waits_.push_back({d, c.later.range.first - c.earlier.range.first, c.earlier.range.count});
        });
        if (waits_.size() == before) waits_.push_back({d, 0, s.steps[d].chunks, true});
      }
    }
    if (&s == &schedules_.back()) first_wait_.push_back(waits_.size());
  }

  static std::size_t rank_of(const Schedule& s) { return static_cast<std::size_t>(s.rank); }
  Value& value(std::size_t rank, Buffer b, std::uint32_t c) {
    return values_[first_value_[rank] + static_cast<std::size_t>(b) * shape_.chunks + c];
  }
  std::uint16_t& progress(std::size_t rank, std::uint32_t step) { return progress_[base_[rank] + step]; }
  const Step& step(std::size_t rank, std::uint32_t i) const { return schedules_[rank].steps[i]; }

  void fail(std::size_t rank, std::uint32_t i, const std::string& why) {
    if (status_.is_ok()) status_ = at_step(schedules_[rank], i, why);
  }

  // The dependency for which the step's next chunk still waits, or kNothing.
  std::uint32_t blocker(std::size_t rank, std::uint32_t i) {
    const std::size_t s = base_[rank] + i;
    const std::uint32_t k = progress_[s];
    for (std::size_t w = first_wait_[s]; w < first_wait_[s + 1]; ++w) {
      const std::uint32_t other = waits_[w].whole ? waits_[w].count - 1 : k + waits_[w].offset;
      if (other < waits_[w].count && other >= progress(rank, waits_[w].on)) return waits_[w].on;
    }
    return kNothing;
  }

  // Whether the step's next chunk may proceed; if not, the actor sleeps until the blocker moves.
  bool may_go(std::size_t actor, std::size_t rank, std::uint32_t i) {
    const std::uint32_t d = blocker(rank, i);
    if (d == kNothing) return true;
    std::uint32_t& first = waiting_[base_[rank] + d];
    actor_next_[actor] = first;
    first = static_cast<std::uint32_t>(actor);
    return false;
  }

  void advance(std::size_t rank, std::uint32_t i) {
    ++progress(rank, i);
    ++moved_;
    std::uint32_t& first = waiting_[base_[rank] + i];
    for (std::uint32_t actor = first; actor != kNothing; actor = actor_next_[actor]) ready_.push_back(actor);
    first = kNothing;
  }

  void run_channel(std::size_t actor, std::size_t from, std::size_t to) {
    Lanes& out = sends_[from];
    Lanes& in = recvs_[to];
    while (!out.done(to) && !in.done(from) && status_.is_ok()) {
      const std::uint32_t i = out.head(to);
      const std::uint32_t k = in.head(from);
      const Step& send = step(from, i);
      const Step& recv = step(to, k);
      const std::uint32_t c = send.source_chunk + progress(from, i);
      const std::uint32_t expected = recv.target_chunk + progress(to, k);
      if (c % shape_.chunks_per_block() != expected % shape_.chunks_per_block()) {
        return fail(to, k,
                    fmt::format("expects chunk {} and gets chunk {} of step {} there, another part of a block",
                                expected, c, i));
      }
      if (!may_go(actor, from, i) || !may_go(actor, to, k)) return;
      const Value sent = value(from, send.source, c);
      if (sent.tree == Trees::kNone) return fail(from, i, "sends a chunk that was never written");
      ++proof_.transfers;
      value(to, recv.target, expected) =
          recv.kind == StepKind::kRecv
              ? sent
              : combine(to, k, value(to, recv.source, recv.source_chunk + progress(to, k)), sent);
      advance(from, i);
      advance(to, k);
      if (progress(from, i) == send.chunks) ++out.next[to];
      if (progress(to, k) == recv.chunks) ++in.next[from];
    }
  }

  void run_local(std::size_t actor, std::size_t rank) {
    Lanes& lane = locals_[rank];
    while (!lane.done(0) && status_.is_ok()) {
      const std::uint32_t i = lane.head(0);
      const Step& s = step(rank, i);
      if (!may_go(actor, rank, i)) return;
      const std::uint32_t c = s.target_chunk + progress(rank, i);
      const Value source = value(rank, s.source, s.source_chunk + progress(rank, i));
      Value& target = value(rank, s.target, c);
      if (s.kind == StepKind::kReduce) {
        target = combine(rank, i, source, value(rank, s.operand, c));
      } else {
        if (source.tree == Trees::kNone) return fail(rank, i, "copies a chunk that was never written");
        if (source == target) return fail(rank, i, "copies a value that is already there");
        target = source;
      }
      advance(rank, i);
      if (progress(rank, i) == s.chunks) ++lane.next[0];
    }
  }

  Value combine(std::size_t rank, std::uint32_t i, const Value& a, const Value& b) {
    if (!combines(shape_.collective)) fail(rank, i, "combines in a collective without a reduction");
    if (a.tree == Trees::kNone || b.tree == Trees::kNone) {
      fail(rank, i, "combines a chunk that was never written");
    } else if (a.chunk != b.chunk) {
      fail(rank, i, fmt::format("combines chunk {} with chunk {}", a.chunk, b.chunk));
    }
    if (status_.is_ok() && order_ == Order::kRanks) check_order(rank, i, a.tree, b.tree);
    if (!status_.is_ok()) return {};
    ++proof_.combinations;
    const Trees::Id id = trees_.combine(a.tree, b.tree);
    if (id == Trees::kDuplicate) {
      fail(rank, i, "counts a contribution twice");
      return {};
    }
    // A prefix is not final, even if it includes all ranks.
    const bool complete = trees_.complete(id) && !combines_prefixes(shape_.collective);
    if (complete != step(rank, i).final) {
      fail(rank, i, complete ? "completes the reduction but is not final" : "is final but lacks contributions");
    }
    return {id, a.chunk};
  }

  // `a` is the step's source. By induction both values are combinations of consecutive ranks.
  void check_order(std::size_t rank, std::uint32_t i, Trees::Id a, Trees::Id b) {
    const bool reversed = step(rank, i).reversed;
    const Trees::Id earlier = reversed ? b : a;
    const Trees::Id later = reversed ? a : b;
    if (trees_.last(earlier) + 1 == trees_.first(later)) return;
    fail(rank, i,
         fmt::format("combines ranks {} to {} with {} to {}, which are not the next ranks", trees_.first(earlier),
                     trees_.last(earlier), trees_.first(later), trees_.last(later)));
  }

  void check_all_done() {
    for (std::size_t a = 0; a < ranks_; ++a) {
      if (!locals_[a].done(0)) fail_waiting(a, locals_[a].head(0));
      for (std::size_t b = 0; b < ranks_ && status_.is_ok(); ++b) {
        if (sends_[a].done(b) && recvs_[b].done(a)) continue;
        if (recvs_[b].done(a)) return fail(a, sends_[a].head(b), "the peer does not receive this");
        if (sends_[a].done(b)) return fail(b, recvs_[b].head(a), "the peer does not send this");
        fail_waiting(a, sends_[a].head(b));
        fail_waiting(b, recvs_[b].head(a));
      }
    }
  }

  void fail_waiting(std::size_t rank, std::uint32_t i) {
    const std::uint32_t d = blocker(rank, i);
    if (d != kNothing) fail(rank, i, fmt::format("deadlock: waits without end for step {}", d));
  }

  void check_outputs() {
    for (std::uint32_t c = 0; c < shape_.chunks; ++c) {
      Trees::Id common = Trees::kNone;
      for (std::size_t r = 0; r < ranks_; ++r) {
        if (!shape_.in_output(static_cast<std::int32_t>(r), c)) continue;
        const Value& found = value(r, Buffer::kOutput, c);
        const char* why = wrong(static_cast<std::uint32_t>(r), found, c);
        const bool alike = alike_everywhere(shape_.collective);
        if (why == nullptr && alike && common != Trees::kNone && common != found.tree)
          why = "combined in another order";
        common = found.tree;
        if (why == nullptr) continue;
        status_ = Status::internal(fmt::format("rank {}: output chunk {} is {}", r, c, why));
        return;
      }
    }
  }

  // The error of an output, or nullptr.
  [[nodiscard]] const char* wrong(std::uint32_t rank, const Value& found, std::uint32_t c) {
    if (found.tree == Trees::kNone) return "never written";
    const std::uint32_t parts = shape_.chunks_per_block();
    const Origin origin = info_of(shape_.collective).origin;
    const std::uint32_t wanted = origin == Origin::kPeer ? rank * parts + c % parts : c;
    if (found.chunk != wanted) return "that of another chunk";
    switch (origin) {
      case Origin::kRoot: return found.tree == static_cast<Trees::Id>(shape_.root) ? nullptr : "not the root's";
      case Origin::kOwner:
      case Origin::kPeer: return found.tree == c / parts ? nullptr : "not its owner's";
      case Origin::kAllCombined: return trees_.complete(found.tree) ? nullptr : "without some contribution";
      case Origin::kPrefix:
        return trees_.is_prefix(found.tree, rank + 1) ? nullptr : "not the combination of the ranks up to this one";
      case Origin::kPrefixBefore:
        return trees_.is_prefix(found.tree, rank) ? nullptr : "not the combination of the lower ranks";
    }
    return "of no collective";
  }

  std::span<const Schedule> schedules_;
  const Order order_;
  const Shape shape_;
  const std::size_t ranks_;
  Proof& proof_;
  Pause& pause_;
  std::size_t moved_ = 0;  // chunks, on both sides
  Trees trees_;
  std::vector<Value> values_;             // per rank, buffer, chunk
  std::vector<std::size_t> first_value_;  // per rank
  std::vector<std::size_t> base_;         // per rank: number of its first step among all
  std::vector<Wait> waits_;               // of all steps
  std::vector<std::size_t> first_wait_;   // per step, and one more
  std::vector<std::uint16_t> progress_;   // per step: chunks done
  std::vector<Lanes> sends_;
  std::vector<Lanes> recvs_;
  std::vector<Lanes> locals_;
  std::vector<std::uint32_t> waiting_;     // per step: first actor that waits for it
  std::vector<std::uint32_t> actor_next_;  // per actor: next that waits for the same step
  std::vector<std::size_t> ready_;
  Status status_;
};

}  // namespace

Status check_flow(std::span<const Schedule> schedules, Order order, Proof& proof, Pause& pause) {
  return Flow(schedules, order, proof, pause).run();
}

}  // namespace tutti::internal::schedule::parts
