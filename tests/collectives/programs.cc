#include "programs.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <random>
#include <utility>

#include "moves.h"

namespace tutti::internal::test {
namespace {

constexpr std::size_t kStreams = 2;

// The same on all ranks.
struct Phase {
  std::vector<Move> moves;
  bool grouped = false;
};

Phase draw_phase(std::mt19937& random, int ranks, int comms, std::size_t most_bytes) {
  Phase phase;
  phase.grouped = random() % 4 != 0;
  const bool exchange = phase.grouped && random() % 8 == 0;
  const int exchanging = static_cast<int>(random() % static_cast<unsigned>(comms));
  for (int a = 0; a < ranks && exchange; ++a) {
    for (int b = 0; b < ranks; ++b) {
      Move m = draw_move(random, true, ranks, most_bytes / 4);
      m.comm = exchanging;
      m.root = a;
      m.peer = b;
      phase.moves.push_back(m);
    }
  }
  for (std::size_t left = 1 + random() % 10; left > 0; --left) {
    Move m = draw_move(random, random() % 5 < 2, ranks, most_bytes);
    m.comm = static_cast<int>(random() % static_cast<unsigned>(comms));
    if (m.transfer && !phase.grouped && m.root == m.peer) {
      // A rank that sends to itself needs a group.
      if (ranks == 1) continue;
      m.peer = (m.peer + 1) % ranks;
    }
    phase.moves.push_back(m);
    // Runs of small calls of one kind, and several messages of one pair.
    if (random() % 4 != 0) continue;
    for (std::size_t again = 1 + random() % 6; again > 0; --again)
      phase.moves.push_back(draw_another(random, m, ranks, std::min<std::size_t>(most_bytes, 4000)));
  }
  return phase;
}

class Program {
 public:
  Program(const std::vector<Seat>& seats, int ranks, const ProgramSizes& sizes, std::uint32_t seed)
      : seats_(seats),
        ranks_(ranks),
        sizes_(sizes),
        common_(seed),
        own_(seed * 64 + static_cast<std::uint32_t>(seats[0].rank)) {}

  std::string run() {
    for (tuttiStream_t& stream : streams_) {
      if (tuttiStreamCreate(&stream) != tuttiSuccess) return "tuttiStreamCreate";
    }
    std::string wrong;
    for (std::size_t i = 0; i < sizes_.phases && wrong.empty(); ++i) {
      const Phase phase = draw_phase(common_, ranks_, static_cast<int>(seats_.size()), sizes_.most_bytes);
      wrong = run_phase(phase);
      if (wrong.empty() && own_() % 3 == 0) wrong = synchronize();
      if (!wrong.empty()) wrong = "phase " + std::to_string(i) + (phase.grouped ? ", a group: " : ": ") + wrong;
    }
    if (wrong.empty()) wrong = synchronize();
    for (tuttiStream_t stream : streams_) {
      if (tuttiStreamDestroy(stream) != tuttiSuccess && wrong.empty()) wrong = last_errors("tuttiStreamDestroy");
    }
    return wrong;
  }

 private:
  struct Call {
    std::unique_ptr<Side> side;
    void* stream = nullptr;
  };

  // On one communicator, collectives stay in order, and so do sends to one rank and receives from one. Otherwise each
  // rank has its own order in a group.
  std::vector<Call> order(const Phase& phase) {
    std::vector<std::vector<Call>> strands;
    const auto width = static_cast<std::size_t>(phase.grouped ? 1 + 2 * ranks_ : 0);
    strands.resize(std::max<std::size_t>(1, width * seats_.size()));
    const bool one_stream = own_() % 2 == 0;
    const bool blocking = own_() % 2 == 0;
    for (const Move& m : phase.moves) {
      const int rank = seats_[static_cast<std::size_t>(m.comm)].rank;
      const auto add = [&](bool sends, int strand) {
        const std::size_t at =
            phase.grouped ? static_cast<std::size_t>(m.comm) * width + static_cast<std::size_t>(strand) : 0;
        void* stream = nullptr;
        if (one_stream) {
          stream = blocking ? nullptr : streams_[0];
        } else if (const std::size_t drawn = own_() % 3; drawn < kStreams) {
          stream = streams_[drawn];
        }
        strands[at].push_back({std::make_unique<Side>(m, rank, ranks_, sends), stream});
      };
      if (!m.transfer) {
        add(false, 0);
        continue;
      }
      if (rank == m.root) add(true, 1 + m.peer);
      if (rank == m.peer) add(false, 1 + ranks_ + m.root);
    }
    return merge(&strands);
  }

  std::vector<Call> merge(std::vector<std::vector<Call>>* strands) {
    std::vector<std::size_t> next(strands->size(), 0);
    std::vector<std::size_t> left;
    for (std::size_t s = 0; s < strands->size(); ++s) left.insert(left.end(), (*strands)[s].size(), s);
    std::shuffle(left.begin(), left.end(), own_);
    std::vector<Call> merged;
    for (const std::size_t s : left) merged.push_back(std::move((*strands)[s][next[s]++]));
    return merged;
  }

  std::string run_phase(const Phase& phase) {
    std::vector<Call> calls = order(phase);
    for (Call& call : calls) {
      if (!call.side->prepare(own_() % 5 == 0, own_() % 4)) return "no memory";
    }
    tuttiResult_t result = tuttiSuccess;
    const auto note = [&](tuttiResult_t r) { result = result == tuttiSuccess ? r : result; };
    int nested = 0;
    if (phase.grouped) note(tuttiGroupStart());
    for (Call& call : calls) {
      if (phase.grouped && own_() % 6 == 0) {
        note(tuttiGroupStart());
        ++nested;
      }
      note(call.side->issue(comm_of(call), call.stream));
      if (nested > 0 && own_() % 3 == 0) {
        note(tuttiGroupEnd());
        --nested;
      }
    }
    for (int left = nested + (phase.grouped ? 1 : 0); left > 0; --left) note(tuttiGroupEnd());
    for (Call& call : calls) note(call.side->release(comm_of(call)));
    if (result != tuttiSuccess) return last_errors("result " + std::to_string(result));
    for (Call& call : calls) {
      if (call.stream != nullptr) {
        queued_.push_back(std::move(call));
      } else if (std::string wrong = call.side->check(); !wrong.empty()) {
        return wrong;
      }
    }
    return {};
  }

  std::string synchronize() {
    for (tuttiStream_t stream : streams_) {
      if (tuttiStreamSynchronize(stream) != tuttiSuccess) return last_errors("tuttiStreamSynchronize");
    }
    for (const Call& call : queued_) {
      if (std::string wrong = call.side->check(); !wrong.empty()) return "in a stream: " + wrong;
    }
    queued_.clear();
    return {};
  }

  [[nodiscard]] tuttiComm_t comm_of(const Call& call) const {
    return seats_[static_cast<std::size_t>(call.side->move().comm)].comm;
  }
  [[nodiscard]] std::string last_errors(std::string text) const {
    text += std::string(": ") + tuttiGetLastError(nullptr);
    for (const Seat& seat : seats_) text += std::string("; ") + tuttiGetLastError(seat.comm);
    return text;
  }

  const std::vector<Seat>& seats_;
  int ranks_;
  ProgramSizes sizes_;
  std::mt19937 common_;
  std::mt19937 own_;
  std::array<tuttiStream_t, kStreams> streams_{};
  std::vector<Call> queued_;
};

}  // namespace

int number_in(int c, int rank, int ranks) {
  return c == 0 ? rank : c == 1 ? ranks - 1 - rank : (rank + c - 1) % ranks;
}

std::string make_seats(tuttiComm_t comm, int rank, int ranks, int wanted, std::vector<Seat>* seats) {
  *seats = {{comm, rank}};
  for (int c = 1; c < wanted; ++c) {
    tuttiUniqueId id;
    std::memset(&id, 0, sizeof id);
    if (rank == 0 && tuttiGetUniqueId(&id) != tuttiSuccess) return tuttiGetLastError(nullptr);
    if (tuttiBcast(&id, sizeof id, tuttiUint8, 0, comm, nullptr) != tuttiSuccess) return tuttiGetLastError(comm);
    Seat seat{nullptr, number_in(c, rank, ranks)};
    if (tuttiCommInitRank(&seat.comm, ranks, id, seat.rank) != tuttiSuccess) return tuttiGetLastError(nullptr);
    seats->push_back(seat);
  }
  return {};
}

std::string leave_seats(const std::vector<Seat>& seats) {
  std::string wrong;
  for (std::size_t c = 1; c < seats.size(); ++c) {
    if (tuttiCommDestroy(seats[c].comm) != tuttiSuccess) wrong = "destroy failed";
  }
  return wrong;
}

std::string run_programs(const std::vector<Seat>& seats, int ranks, const ProgramSizes& sizes) {
  for (std::uint32_t seed = 1; seed <= sizes.programs; ++seed) {
    const std::string wrong = Program(seats, ranks, sizes, seed).run();
    if (!wrong.empty()) return "seed " + std::to_string(seed) + ", " + wrong;
  }
  return {};
}

}  // namespace tutti::internal::test
