#include "script.h"

#include <algorithm>
#include <cmath>
#include <iterator>

namespace tutti::internal::test::chaos {
namespace {

constexpr int kCalmTimeoutMs = 8000;  // if no call is expected to time out
constexpr int kInitTimeoutMs = 15'000;

// Few bytes as often as many, and now and then none.
std::size_t draw_bytes(Random& random, double least, double most) {
  if (random.chance(6)) return 0;
  const double exponent = std::log2(least) + std::log2(most / least) * random.below(10'001) / 10'000.0;
  return static_cast<std::size_t>(std::exp2(exponent));
}

bool is_defined(const Spec& s) {
  return tutti::internal::supports(s.type, s.op) &&
         (s.op != ReduceOp::kAvg || !tutti::internal::combines_prefixes(s.collective));
}

Spec draw_spec(Random& random, int ranks, double least_bytes, double most_bytes) {
  Spec s;
  s.collective = static_cast<Collective>(random.below(kCollectives));
  s.type = static_cast<DataType>(random.below(kDataTypes));
  do s.op = static_cast<ReduceOp>(random.below(kReduceOps));
  while (!is_defined(s));
  s.root = tutti::internal::has_root(s.collective) ? random.below(ranks) : 0;
  const std::size_t bytes = draw_bytes(random, least_bytes, most_bytes);
  s.count = bytes / size_of(s.type) / blocks_of(s.collective, ranks);
  if (bytes != 0) s.count = std::max<std::size_t>(s.count, 1);
  s.in_place = random.chance(40);
  s.registered = random.chance(40);
  constexpr std::size_t kMisalign[] = {0, 0, 0, 1, 4, 2, 8};
  s.misalign = kMisalign[random.below(static_cast<int>(std::size(kMisalign)))];
  return s;
}

// Another valid call.
Spec draw_odd(Random& random, const Spec& spec, int ranks) {
  Spec odd = spec;
  // A barrier can only differ in the collective.
  switch (spec.collective == Collective::kBarrier ? 3 : random.below(4)) {
    case 0: odd.count += static_cast<std::size_t>(random.between(1, 3)); break;
    case 1:
      do odd.type = static_cast<DataType>(random.below(kDataTypes));
      while (odd.type == spec.type || !is_defined(odd));
      break;
    case 2:
      if (tutti::internal::has_root(spec.collective)) {
        odd.root = (spec.root + random.between(1, ranks - 1)) % ranks;
        break;
      }
      [[fallthrough]];
    default:
      odd.collective = static_cast<Collective>(
          (static_cast<int>(spec.collective) + random.between(1, kCollectives - 1)) % kCollectives);
      odd.root = tutti::internal::has_root(odd.collective) ? random.below(ranks) : 0;
      if (!is_defined(odd)) odd.op = ReduceOp::kSum;
  }
  return odd;
}

void draw_hosting(Random& random, const Allowed& allowed, Round* round) {
  round->hosting = Hosting::kInitAll;
  if (allowed.processes) {
    constexpr Hosting kHosting[] = {Hosting::kInitAll, Hosting::kThreads, Hosting::kMixed, Hosting::kProcesses,
                                    Hosting::kProcesses};
    round->hosting = kHosting[random.below(static_cast<int>(std::size(kHosting)))];
  }
  const int n = round->ranks;
  round->process_of.assign(static_cast<std::size_t>(n), 0);
  round->processes = round->hosting == Hosting::kProcesses ? n : round->hosting == Hosting::kMixed ? (n + 1) / 2 : 1;
  // Neighbours in rank, or not.
  const bool blocks = random.chance(50);
  for (int r = 0; r < n; ++r) {
    round->process_of[static_cast<std::size_t>(r)] = blocks ? r * round->processes / n : r % round->processes;
  }
}

// Sends and receives, and any collectives, including those with different block counts and user-defined operators and
// datatypes.
std::vector<Move> draw_group(Random& random, const Round& round, double least_bytes, double most_bytes) {
  std::mt19937 drawn(static_cast<std::uint32_t>(random.next()));
  std::vector<Move> moves;
  for (int left = random.between(1, 6); left > 0; --left) {
    Move m = draw_move(drawn, random.chance(60), round.ranks, draw_bytes(random, least_bytes, most_bytes));
    m.comm = random.below(round.comms);
    moves.push_back(m);
    // Because small ones of one kind may run together, and several messages of one pair follow each other.
    for (int again = random.chance(25) ? random.between(1, 4) : 0; again > 0; --again)
      moves.push_back(draw_another(drawn, m, round.ranks, 2000));
  }
  return moves;
}

void draw_steps(Random& random, Round* round) {
  const double most_bytes = round->tiny_buffers ? 256.0 * 1024 : 2048.0 * 1024;
  // If all are long, mishaps occur while peers read and write each other's memory.
  const double least_bytes = random.chance(25) ? 128.0 * 1024 : 8.0;
  const int count = random.between(4, 40);
  std::vector<int> queued(static_cast<std::size_t>(round->streams), 0);
  for (int i = 0; i < count; ++i) {
    Step step;
    step.comm = random.below(round->comms);
    step.pause_us = random.chance(10) ? random.below(5000) : 0;
    step.spec = draw_spec(random, round->ranks, least_bytes, most_bytes);
    if (random.chance(35)) step.moves = draw_group(random, *round, least_bytes, most_bytes);
    if (round->streams > 0 && random.chance(50)) {
      step.stream = random.below(round->streams);
      int& in_stream = queued[static_cast<std::size_t>(step.stream)];
      step.synchronize = in_stream > 0 && (in_stream == 4 || random.chance(25));
      in_stream = step.synchronize ? 0 : in_stream + 1;
    }
    round->steps.push_back(step);
  }
  // At the end all ranks synchronise: a rank that completes this has synchronised with all others.
  for (int c = 0; c < round->comms; ++c) {
    Step step;
    step.comm = c;
    step.spec.collective = Collective::kBarrier;
    round->steps.push_back(step);
  }
}

bool possible(const Round& round, const Allowed& allowed, MishapKind kind) {
  if (!allowed.kinds[static_cast<int>(kind)]) return false;
  const bool of_process = kind == MishapKind::kKill || kind == MishapKind::kStop || kind == MishapKind::kExit;
  return !of_process || round.processes > 1;
}

Mishap draw_mishap(Random& random, const Round& round, MishapKind kind) {
  Mishap m;
  m.kind = kind;
  m.rank = random.below(round.ranks);
  const int steps = static_cast<int>(round.steps.size());
  m.step = random.chance(10) ? kInInit : random.below(steps);
  m.delay_us = random.chance(50) ? random.below(300) : random.below(20'000);
  m.comm = random.below(round.comms);
  m.orderly = random.chance(40);
  const bool from_a_step = kind == MishapKind::kAbort || kind == MishapKind::kLeave || kind == MishapKind::kAbsent;
  if (from_a_step) m.step = std::max(m.step, 0);
  if (kind == MishapKind::kStop) {
    m.stopped_ms = random.chance(40) ? random.between(50, 900) : round.timeout_ms + random.between(300, 2500);
    m.then_kill = random.chance(30);
  }
  if (kind == MishapKind::kFewFiles) m.files = random.below(24);
  if (kind == MishapKind::kDiffer) {
    m.step = random.below(steps);
    const auto calls_none = [&](const Step& s) { return s.synchronize || !s.moves.empty(); };
    while (calls_none(round.steps[static_cast<std::size_t>(m.step)])) m.step = (m.step + 1) % steps;
    m.odd = draw_odd(random, round.steps[static_cast<std::size_t>(m.step)].spec, round.ranks);
  }
  return m;
}

void draw_mishaps(Random& random, const Allowed& allowed, Round* round) {
  const int draw = random.below(10);
  const int wanted = draw == 0 ? 0 : draw <= 6 ? 1 : 2;
  for (int i = 0; i < wanted; ++i) {
    auto kind = static_cast<MishapKind>(random.below(kMishapKinds));
    if (i == 0 && allowed.forced >= 0) kind = static_cast<MishapKind>(allowed.forced);
    if (!possible(*round, allowed, kind)) continue;
    // Two calls that differ, or one beside a missing rank, have no single cause.
    if (i > 0 && (kind == MishapKind::kDiffer || round->has(MishapKind::kDiffer))) continue;
    round->mishaps.push_back(draw_mishap(random, *round, kind));
  }
}

const char* name_of_hosting(Hosting hosting) {
  switch (hosting) {
    case Hosting::kInitAll: return "threads by tuttiCommInitAll";
    case Hosting::kThreads: return "threads by tuttiCommInitRank";
    case Hosting::kMixed: return "processes of several threads";
    case Hosting::kProcesses: return "processes";
  }
  return "?";
}

}  // namespace

std::uint64_t Random::next() {
  std::uint64_t x = state_ += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

const char* name_of(MishapKind kind) {
  constexpr const char* kNames[] = {"kill", "stop", "abort", "leave", "exit", "absent", "differ", "few_files"};
  return kNames[static_cast<int>(kind)];
}

bool Round::has(MishapKind kind) const {
  return std::any_of(mishaps.begin(), mishaps.end(), [&](const Mishap& m) { return m.kind == kind; });
}

Round draw_round(std::uint64_t seed, const Allowed& allowed) {
  Random random(seed);
  Round round;
  round.seed = seed;
  round.ranks = random.between(2, kMaxRanks);
  draw_hosting(random, allowed, &round);
  constexpr const char* kTransports[] = {"shm", "tcp", ""};
  round.transports = kTransports[random.below(3)];
  round.comms = random.chance(60) ? 1 : random.between(2, kMaxComms);
  round.streams = random.chance(60) ? 0 : random.between(1, 2);
  round.tiny_buffers = random.chance(15) && allowed.tiny_buffers;
  if (round.tiny_buffers) round.transports = "tcp";
  round.perturb = random.chance(30);
  round.loads = random.chance(25) ? random.between(1, 2) : 0;
  round.asks = random.chance(30);
  round.init_timeout_ms = kInitTimeoutMs;
  round.timeout_ms = random.between(3000, 5000);
  draw_steps(random, &round);
  draw_mishaps(random, allowed, &round);
  const bool times_out = round.has(MishapKind::kStop) || round.has(MishapKind::kAbsent);
  if (!times_out) round.timeout_ms = kCalmTimeoutMs;
  const bool only_deaths = std::all_of(round.mishaps.begin(), round.mishaps.end(), [](const Mishap& m) {
    return m.kind == MishapKind::kKill || m.kind == MishapKind::kExit;
  });
  round.goes_on = only_deaths && random.chance(80);
  return round;
}

std::string text_of(const Mishap& m) {
  std::string s = std::string(name_of(m.kind)) + " of rank " + std::to_string(m.rank);
  s += m.step == kInInit ? " while communicators are made" : " at step " + std::to_string(m.step);
  switch (m.kind) {
    case MishapKind::kKill: return s + " +" + std::to_string(m.delay_us) + " us";
    case MishapKind::kStop:
      return s + " +" + std::to_string(m.delay_us) + " us for " + std::to_string(m.stopped_ms) + " ms, then " +
             (m.then_kill ? "SIGKILL" : "SIGCONT");
    case MishapKind::kAbort:
      return s + " +" + std::to_string(m.delay_us) + " us of communicator " + std::to_string(m.comm);
    case MishapKind::kLeave:
      return s + (m.orderly ? ": finalizes" : ": destroys") + " communicator " + std::to_string(m.comm);
    case MishapKind::kExit: return s + (m.orderly ? " by exit" : " by _exit");
    case MishapKind::kAbsent: return s;
    case MishapKind::kDiffer: return s + ": " + m.odd.text();
    case MishapKind::kFewFiles: return s + ": " + std::to_string(m.files) + " more descriptors";
  }
  return s;
}

std::string text_of(const Round& round) {
  std::string s = "seed " + std::to_string(round.seed) + ": " + std::to_string(round.ranks) + " ranks, " +
                  name_of_hosting(round.hosting) + ", " +
                  (round.transports.empty() ? "default transports" : round.transports) + ", timeout " +
                  std::to_string(round.timeout_ms) + " ms, " + std::to_string(round.comms) + " communicator(s), " +
                  std::to_string(round.streams) + " stream(s)";
  if (round.tiny_buffers) s += ", tiny TCP buffers";
  if (round.perturb) s += ", perturbed malloc";
  if (round.asks) s += ", errors are asked for";
  if (round.goes_on) s += ", the ranks that live go on";
  if (round.loads > 0) s += ", " + std::to_string(round.loads) + " busy loop(s) beside";
  s += "\n  processes of the ranks:";
  for (const int p : round.process_of) s.append(" ").append(std::to_string(p));
  for (const Mishap& m : round.mishaps) s += "\n  mishap: " + text_of(m);
  for (std::size_t i = 0; i < round.steps.size(); ++i) {
    const Step& step = round.steps[i];
    s += "\n  step " + std::to_string(i) + ": ";
    if (step.pause_us > 0) s += "pause " + std::to_string(step.pause_us) + " us, ";
    if (step.synchronize) {
      s += "synchronize stream " + std::to_string(step.stream);
      continue;
    }
    if (!step.moves.empty()) {
      s += "group" + (step.stream >= 0 ? " in stream " + std::to_string(step.stream) : std::string());
      for (const Move& m : step.moves) s += "\n    " + m.text();
      continue;
    }
    s += "comm " + std::to_string(step.comm) + (step.stream >= 0 ? " stream " + std::to_string(step.stream) : "") +
         " " + step.spec.text();
  }
  return s + "\n";
}

}  // namespace tutti::internal::test::chaos
