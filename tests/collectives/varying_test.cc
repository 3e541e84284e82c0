// Blocks with different counts, through the public interface, compared with a naive model: every byte of every buffer
// is compared, so that gaps between blocks must be unchanged.
#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <vector>

#include "catch_compat.h"
#include "job.h"
#include "sanitizers.h"

namespace tutti::internal::test {
namespace {

using Counts = std::vector<std::size_t>;
using Values = std::vector<std::uint32_t>;

constexpr std::uint32_t kUntouched = 0xa5a5a5a5;

// A call of all ranks: the same arguments everywhere, drawn from one seed.
struct Round {
  std::vector<Counts> counts;         // [from][to]
  std::vector<Counts> displacements;  // [rank][block], in a buffer of that rank; empty: packed
  std::size_t room = 0;               // elements of a buffer of blocks
  int root = 0;
  bool in_place = false;
  std::uint32_t seed = 0;
};

std::uint32_t value(std::uint32_t seed, std::size_t rank, std::size_t i) {
  return static_cast<std::uint32_t>((seed * 31 + rank) * 2654435761u + i * 40503u);
}

std::size_t draw_count(std::mt19937& random, std::size_t most) {
  switch (random() % 4) {
    case 0: return 0;
    case 1: return random() % 4;
    case 2: return random() % std::min<std::size_t>(most, 500);
    default: return random() % most;
  }
}

// Blocks in some order, with gaps.
Counts draw_displacements(std::mt19937& random, const Counts& counts, std::size_t* room) {
  std::vector<std::size_t> order(counts.size());
  std::iota(order.begin(), order.end(), 0);
  if (random() % 2 == 0) std::shuffle(order.begin(), order.end(), random);
  Counts displacements(counts.size());
  std::size_t at = random() % 3;
  for (const std::size_t r : order) {
    displacements[r] = at;
    at += counts[r] + random() % 3;
  }
  *room = std::max(*room, at);
  return displacements;
}

Round draw(std::uint32_t seed, int ranks, std::size_t most) {
  std::mt19937 random(seed);
  Round r;
  r.seed = seed;
  r.root = static_cast<int>(random() % static_cast<unsigned>(ranks));
  r.in_place = random() % 3 == 0;
  const auto n = static_cast<std::size_t>(ranks);
  const bool packed = random() % 3 == 0;
  r.counts.assign(n, Counts(n));
  for (Counts& row : r.counts) {
    for (std::size_t& c : row) c = draw_count(random, most);
  }
  // An all-to-all in place has one set of counts, so those of each pair are the same both ways.
  if (r.in_place) {
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t k = 0; k < i; ++k) r.counts[i][k] = r.counts[k][i];
    }
  }
  for (std::size_t rank = 0; rank < n; ++rank) {
    Counts blocks(n);
    for (std::size_t k = 0; k < n; ++k) blocks[k] = std::max(r.counts[rank][k], r.counts[k][rank]);
    for (std::size_t k = 0; k < n; ++k) blocks[k] = std::max(blocks[k], r.counts[k][0]);
    r.room = std::max(r.room, std::accumulate(blocks.begin(), blocks.end(), std::size_t{0}));
    if (!packed) r.displacements.push_back(draw_displacements(random, blocks, &r.room));
  }
  return r;
}

// One rank's side of it.
class Rank {
 public:
  Rank(tuttiComm_t comm, int rank, int ranks, const Round& round)
      : comm_(comm), me_(static_cast<std::size_t>(rank)), n_(static_cast<std::size_t>(ranks)), r_(round) {
    own_.resize(n_);
    for (std::size_t k = 0; k < n_; ++k) own_[k] = r_.counts[k][0];
  }

  std::string run() {
    for (auto call : {&Rank::all_gather, &Rank::reduce_scatter, &Rank::all_to_all, &Rank::gather, &Rank::scatter}) {
      if (std::string wrong = (this->*call)(); !wrong.empty()) return wrong;
    }
    return {};
  }

 private:
  [[nodiscard]] const std::size_t* displacements(std::size_t rank) const {
    return r_.displacements.empty() ? nullptr : r_.displacements[rank].data();
  }
  [[nodiscard]] std::size_t at(const Counts& counts, std::size_t rank, std::size_t block) const {
    if (!r_.displacements.empty()) return r_.displacements[rank][block];
    return std::accumulate(counts.begin(), counts.begin() + static_cast<std::ptrdiff_t>(block), std::size_t{0});
  }
  // Rank k's own block, or its buffer of blocks.
  [[nodiscard]] Values input(std::size_t k, std::size_t size) const {
    Values v(size);
    for (std::size_t i = 0; i < size; ++i) v[i] = value(r_.seed, k, i);
    return v;
  }
  std::string check(const char* what, tuttiResult_t result, const Values& found, const Values& expected) const {
    if (result != tuttiSuccess) return std::string(what) + ": " + tuttiGetLastError(comm_);
    if (found == expected) return {};
    const auto differ = std::mismatch(found.begin(), found.end(), expected.begin()).first - found.begin();
    return std::string(what) + ": element " + std::to_string(differ) + " of " + std::to_string(found.size()) +
           " is wrong, seed " + std::to_string(r_.seed);
  }
  static void put(Values* target, std::size_t at, const Values& source, std::size_t from, std::size_t count) {
    std::copy_n(source.begin() + static_cast<std::ptrdiff_t>(from), count,
                target->begin() + static_cast<std::ptrdiff_t>(at));
  }

  // all-gather, and gather at the root: block k is rank k's own.
  std::string gather_to(const char* what, bool receives, bool all) {
    Values own = input(me_, own_[me_]);
    Values recv(r_.room, kUntouched);
    Values expected = recv;
    if (receives) {
      for (std::size_t k = 0; k < n_; ++k) put(&expected, at(own_, me_, k), input(k, own_[k]), 0, own_[k]);
    }
    const bool in_place = r_.in_place && receives;
    if (in_place) put(&recv, at(own_, me_, me_), own, 0, own_[me_]);
    const std::uint32_t* const send = in_place ? recv.data() + at(own_, me_, me_) : own.data();
    const tuttiResult_t result =
        all ? tuttiAllGatherV(send, own_[me_], recv.data(), own_.data(), displacements(me_), tuttiUint32, comm_,
                              nullptr)
            : tuttiGatherV(send, own_[me_], receives ? recv.data() : nullptr, receives ? own_.data() : nullptr,
                           displacements(me_), tuttiUint32, r_.root, comm_, nullptr);
    return check(what, result, recv, expected);
  }
  std::string all_gather() { return gather_to("all_gather_v", true, true); }
  std::string gather() { return gather_to("gather_v", me_ == static_cast<std::size_t>(r_.root), false); }

  std::string reduce_scatter() {
    const std::size_t total = std::accumulate(own_.begin(), own_.end(), std::size_t{0});
    const std::size_t begin =
        std::accumulate(own_.begin(), own_.begin() + static_cast<std::ptrdiff_t>(me_), std::size_t{0});
    Values send = input(me_, total);
    Values recv(own_[me_] + 1, kUntouched);
    Values expected = recv;
    for (std::size_t i = 0; i < own_[me_]; ++i) {
      expected[i] = 0;
      for (std::size_t k = 0; k < n_; ++k) expected[i] += value(r_.seed, k, begin + i);
    }
    std::uint32_t* const target = r_.in_place ? send.data() + begin : recv.data();
    const tuttiResult_t result =
        tuttiReduceScatterV(send.data(), target, own_.data(), tuttiUint32, tuttiSum, comm_, nullptr);
    if (r_.in_place) put(&recv, 0, send, begin, own_[me_]);
    return check("reduce_scatter_v", result, recv, expected);
  }

  std::string all_to_all() {
    const Counts& sent = r_.counts[me_];
    Counts received(n_);
    for (std::size_t k = 0; k < n_; ++k) received[k] = r_.counts[k][me_];
    Values send = input(me_, r_.room);
    Values recv(r_.room, kUntouched);
    Values expected = r_.in_place ? send : recv;
    for (std::size_t k = 0; k < n_; ++k) {
      put(&expected, at(received, me_, k), input(k, r_.room), at(r_.counts[k], k, me_), received[k]);
    }
    Values* const target = r_.in_place ? &send : &recv;
    const tuttiResult_t result = tuttiAlltoAllV(send.data(), sent.data(), displacements(me_), target->data(),
                                                received.data(), displacements(me_), tuttiUint32, comm_, nullptr);
    return check("alltoall_v", result, *target, expected);
  }

  std::string scatter() {
    const auto root = static_cast<std::size_t>(r_.root);
    const bool is_root = me_ == root;
    Values blocks = input(root, r_.room);
    Values recv(own_[me_] + 1, kUntouched);
    Values expected = recv;
    put(&expected, 0, blocks, at(own_, root, me_), own_[me_]);
    const bool in_place = r_.in_place && is_root;
    std::uint32_t* const target = in_place ? blocks.data() + at(own_, root, root) : recv.data();
    const tuttiResult_t result =
        tuttiScatterV(is_root ? blocks.data() : nullptr, is_root ? own_.data() : nullptr, displacements(root), target,
                      own_[me_], tuttiUint32, r_.root, comm_, nullptr);
    if (in_place) put(&recv, 0, blocks, at(own_, root, root), own_[me_]);
    return check("scatter_v", result, recv, expected);
  }

  tuttiComm_t comm_;
  std::size_t me_;
  std::size_t n_;
  const Round& r_;
  Counts own_;  // of each rank's own block
};

using RunJob = std::vector<Outcome> (*)(int ranks, const std::string& transports, const Body& body);

void check_rounds(RunJob run, int ranks, const std::string& transports, int rounds, std::size_t most) {
  INFO(transports << ", " << ranks << " ranks");
  const auto outcomes = run(ranks, transports, [&](tuttiComm_t comm, int rank, int n) {
    for (int i = 0; i < rounds; ++i) {
      const Round round = draw(static_cast<std::uint32_t>(i * 1000 + n), n, most);
      if (std::string wrong = Rank(comm, rank, n, round).run(); !wrong.empty()) return Outcome{wrong, 0};
    }
    return Outcome{};
  });
  REQUIRE(wrong_of(outcomes) == "");
}

void check_transport(RunJob run, const std::string& transports) {
  for (const int ranks : {1, 2, 3, 4, 5, 7, 9}) {
    // The simulated network is slow on purpose, and most of all with many ranks.
    const bool simulated = transports == "sim:3";
    if (kThreadSanitizer && ranks > 5) continue;
    check_rounds(run, ranks, transports, kAnySanitizer || (simulated && ranks > 7) ? 5 : 20, 3000);
    const std::size_t large = simulated ? 40'000 : 400'000;
    if (ranks <= 4) check_rounds(run, ranks, transports, kThreadSanitizer ? 2 : 6, large);
  }
}

// Runs `call` on every rank. It is refused there, or at the latest by the next operation: a rank that has not found a
// difference itself gets the error too.
template <class F>
void check_refused(int ranks, tuttiResult_t expected, F&& call) {
  const auto outcomes = run_threads(ranks, "shm", [&](tuttiComm_t comm, int rank, int n) {
    tuttiResult_t result = call(comm, rank, n);
    if (result == tuttiSuccess) result = tuttiBarrier(comm, nullptr);
    if (result == expected) return Outcome{};
    return Outcome{"result " + std::to_string(result) + ": " + tuttiGetLastError(comm), 0};
  });
  CHECK(wrong_of(outcomes) == "");
}

}  // namespace

TEST_CASE("blocks of different counts between threads", "[threads]") {
  for (const char* transports : {"shm", "tcp", "sim:3"}) check_transport(run_threads, transports);
  check_rounds(run_threads, 33, "shm", 3, 400);
}

TEST_CASE("blocks of different counts between processes", "[processes]") {
  for (const char* transports : {"shm", "tcp"}) {
    for (const int ranks : {2, 3, 5}) {
      check_rounds(run_processes, ranks, transports, 15, 3000);
      check_rounds(run_processes, ranks, transports, 4, 400'000);
    }
  }
}

TEST_CASE("ranks with different counts get an error", "[threads]") {
  std::vector<std::uint32_t> send(100);
  check_refused(3, tuttiMismatch, [&](tuttiComm_t comm, int rank, int) {
    // Rank 1 expects one element more from rank 0 than rank 0 sends.
    Counts counts{4, 4, 4};
    Counts received{rank == 1 ? 5u : 4u, 4, 4};
    Values recv(20);
    return tuttiAlltoAllV(send.data(), counts.data(), nullptr, recv.data(), received.data(), nullptr, tuttiUint32, comm,
                          nullptr);
  });
  check_refused(2, tuttiMismatch, [&](tuttiComm_t comm, int rank, int) {
    Counts counts{3, rank == 0 ? 3u : 4u};
    Values recv(10);
    return tuttiAllGatherV(send.data(), counts[static_cast<std::size_t>(rank)], recv.data(), counts.data(), nullptr,
                           tuttiUint32, comm, nullptr);
  });
  check_refused(2, tuttiMismatch, [&](tuttiComm_t comm, int rank, int) {
    Counts counts{3, 5};
    Values recv(10);
    return tuttiScatterV(send.data(), counts.data(), nullptr, recv.data(), rank == 0 ? 3 : 4, tuttiUint32, 0, comm,
                         nullptr);
  });
}

TEST_CASE("impossible arguments of blocks are refused", "[threads]") {
  check_refused(2, tuttiInvalidArgument, [&](tuttiComm_t comm, int rank, int) {
    Values send(10);
    Values recv(10);
    const Counts counts{3, 3};
    const Counts overlapping{0, 2};
    const Counts huge{SIZE_MAX / 4, 3};
    const auto own = counts[static_cast<std::size_t>(rank)];
    const auto refused = [&](tuttiResult_t result) { return result == tuttiInvalidArgument; };
    const bool all =
        refused(tuttiAllGatherV(send.data(), own, recv.data(), counts.data(), overlapping.data(), tuttiUint32, comm,
                                nullptr)) &&
        refused(
            tuttiAllGatherV(send.data(), own + 1, recv.data(), counts.data(), nullptr, tuttiUint32, comm, nullptr)) &&
        refused(tuttiAllGatherV(send.data(), own, recv.data(), nullptr, nullptr, tuttiUint32, comm, nullptr)) &&
        refused(
            tuttiAllGatherV(recv.data() + 1, own, recv.data(), counts.data(), nullptr, tuttiUint32, comm, nullptr)) &&
        refused(tuttiAllGatherV(nullptr, own, recv.data(), counts.data(), nullptr, tuttiUint32, comm, nullptr)) &&
        refused(tuttiReduceScatterV(send.data(), recv.data(), huge.data(), tuttiUint32, tuttiSum, comm, nullptr)) &&
        refused(tuttiAlltoAllV(send.data(), counts.data(), nullptr, send.data() + 1, counts.data(), nullptr,
                               tuttiUint32, comm, nullptr)) &&
        refused(tuttiAlltoAllV(send.data(), counts.data(), nullptr, recv.data(), nullptr, nullptr, tuttiUint32, comm,
                               nullptr));
    // The communicator is still usable.
    const tuttiResult_t then =
        tuttiAllGatherV(send.data(), own, recv.data(), counts.data(), nullptr, tuttiUint32, comm, nullptr);
    return all && then == tuttiSuccess ? tuttiInvalidArgument : tuttiInternalError;
  });
}

}  // namespace tutti::internal::test
