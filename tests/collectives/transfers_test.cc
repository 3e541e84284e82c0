// Sends, receives and groups through the public interface: seeded random programs against a naive model.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "catch_compat.h"
#include "job.h"
#include "sanitizers.h"

namespace tutti::internal::test {
namespace {

using Values = std::vector<std::uint32_t>;
using RunJob = std::vector<Outcome> (*)(int ranks, const std::string& transports, const Body& body);

constexpr std::uint32_t kUntouched = 0xa5a5a5a5;

// The same on all ranks.
struct Message {
  int from = 0;
  int to = 0;
  std::size_t count = 0;
};
struct Phase {
  std::vector<Message> messages;
  std::vector<std::size_t> sums;  // counts of all-reduces
  bool on_stream = false;
};

std::uint32_t value(std::size_t phase, std::size_t number, std::size_t i) {
  return static_cast<std::uint32_t>((phase * 1009 + number) * 2654435761u + i * 40503u);
}

std::size_t draw_count(std::mt19937& random, std::size_t most) {
  switch (random() % 5) {
    case 0: return random() % 4;
    case 1: return random() % most;
    default: return 1 + random() % std::min<std::size_t>(most, 300);
  }
}

Phase draw(std::mt19937& random, int ranks, std::size_t most) {
  Phase phase;
  const auto any = [&] { return static_cast<int>(random() % static_cast<unsigned>(ranks)); };
  switch (random() % 4) {
    case 0:  // one message
      phase.messages.push_back({any(), any(), draw_count(random, most)});
      break;
    case 1:  // all with all
      for (int a = 0; a < ranks; ++a) {
        for (int b = 0; b < ranks; ++b) phase.messages.push_back({a, b, draw_count(random, most / 4 + 1)});
      }
      break;
    default:  // some, perhaps many of one pair
      for (std::size_t left = random() % 20; left > 0; --left) {
        const Message m{any(), any(), draw_count(random, most)};
        for (std::size_t again = 1 + random() % 3; again > 0; --again) phase.messages.push_back(m);
      }
  }
  if (random() % 3 == 0) {
    for (std::size_t left = 1 + random() % 3; left > 0; --left) phase.sums.push_back(draw_count(random, most));
  }
  phase.on_stream = random() % 4 == 0;
  return phase;
}

// One rank's part of one phase.
class Part {
 public:
  Part(tuttiComm_t comm, int rank, int ranks, std::size_t number, const Phase& phase, void* stream)
      : comm_(comm), rank_(rank), ranks_(ranks), number_(number), phase_(phase), stream_(stream) {}

  // In an order that differs between ranks, except messages of one pair in one direction.
  std::string start(std::mt19937& random) {
    struct Call {
      std::size_t message;
      bool sends;
    };
    std::vector<Call> calls;
    for (std::size_t i = 0; i < phase_.messages.size(); ++i) {
      if (phase_.messages[i].from == rank_) calls.push_back({i, true});
      if (phase_.messages[i].to == rank_) calls.push_back({i, false});
    }
    std::vector<std::uint32_t> keys(static_cast<std::size_t>(2 * ranks_));
    for (std::uint32_t& k : keys) k = static_cast<std::uint32_t>(random());
    const auto key = [&](const Call& c) {
      const Message& m = phase_.messages[c.message];
      return keys[static_cast<std::size_t>(c.sends ? m.to : ranks_ + m.from)];
    };
    std::stable_sort(calls.begin(), calls.end(), [&](const Call& a, const Call& b) { return key(a) < key(b); });
    // A single one needs no group.
    const bool grouped = calls.size() + phase_.sums.size() != 1 || random() % 2 == 0;
    sent_.resize(calls.size());
    received_.resize(calls.size());
    if (grouped && tuttiGroupStart() != tuttiSuccess) return "tuttiGroupStart";
    tuttiResult_t result = tuttiSuccess;
    const auto note = [&](tuttiResult_t r) { result = result == tuttiSuccess ? r : result; };
    if (grouped && random() % 3 == 0) {
      note(tuttiGroupStart());
      note(tuttiGroupEnd());
    }
    const std::size_t middle = calls.empty() ? 0 : random() % calls.size();
    for (std::size_t i = 0; i < calls.size(); ++i) {
      if (i == middle) note(sum_all());
      note(transfer(calls[i].message, calls[i].sends, i));
    }
    if (calls.empty()) note(sum_all());
    if (grouped) note(tuttiGroupEnd());
    return result == tuttiSuccess ? std::string() : tuttiGetLastError(comm_);
  }

  // REQUIRES: everything is complete.
  [[nodiscard]] std::string check() const {
    for (const auto& [message, values] : expected_) {
      const std::size_t count = phase_.messages[message].count;
      for (std::size_t i = 0; i <= count; ++i) {
        if (values->at(i) != (i < count ? value(number_, message, i) : kUntouched)) {
          return "phase " + std::to_string(number_) + ": element " + std::to_string(i) + " of message " +
                 std::to_string(message) + " is wrong";
        }
      }
    }
    for (std::size_t s = 0; s < sums_.size(); ++s) {
      for (std::size_t i = 0; i < phase_.sums[s]; ++i) {
        std::uint32_t sum = 0;
        for (int r = 0; r < ranks_; ++r) sum += value(static_cast<std::size_t>(r), s, i);
        if (sums_[s][i] != sum) return "phase " + std::to_string(number_) + ": sum " + std::to_string(s) + " is wrong";
      }
    }
    return {};
  }

 private:
  tuttiResult_t transfer(std::size_t message, bool sends, std::size_t index) {
    const Message& m = phase_.messages[message];
    if (sends) {
      Values& v = sent_[index];
      v.resize(m.count);
      for (std::size_t i = 0; i < m.count; ++i) v[i] = value(number_, message, i);
      return tuttiSend(v.data(), m.count, tuttiUint32, m.to, comm_, stream_);
    }
    Values& v = received_[index];
    v.assign(m.count + 1, kUntouched);
    expected_.push_back({message, &v});
    return tuttiRecv(v.data(), m.count, tuttiUint32, m.from, comm_, stream_);
  }

  tuttiResult_t sum_all() {
    tuttiResult_t result = tuttiSuccess;
    sums_.resize(phase_.sums.size());
    for (std::size_t s = 0; s < phase_.sums.size() && result == tuttiSuccess; ++s) {
      sums_[s].resize(phase_.sums[s]);
      for (std::size_t i = 0; i < sums_[s].size(); ++i) sums_[s][i] = value(static_cast<std::size_t>(rank_), s, i);
      result = tuttiAllReduce(sums_[s].data(), sums_[s].data(), sums_[s].size(), tuttiUint32, tuttiSum, comm_, stream_);
    }
    return result;
  }

  struct Expected {
    std::size_t message;
    const Values* values;
  };

  tuttiComm_t comm_;
  int rank_;
  int ranks_;
  std::size_t number_;
  const Phase& phase_;
  void* stream_;
  std::vector<Values> sent_;
  std::vector<Values> received_;
  std::vector<Expected> expected_;
  std::vector<Values> sums_;
};

std::string run_program(tuttiComm_t comm, int rank, int ranks, std::uint32_t seed, std::size_t phases,
                        std::size_t most) {
  std::mt19937 common(seed);
  std::mt19937 own(seed * 64 + static_cast<std::uint32_t>(rank));
  tuttiStream_t stream = nullptr;
  if (tuttiStreamCreate(&stream) != tuttiSuccess) return "tuttiStreamCreate";
  std::vector<Phase> drawn(phases);
  std::vector<std::unique_ptr<Part>> queued;
  std::string wrong;
  for (std::size_t i = 0; i < phases && wrong.empty(); ++i) {
    drawn[i] = draw(common, ranks, most);
    // A rank that sends to itself needs a group.
    for (Message& m : drawn[i].messages) {
      if (drawn[i].messages.size() == 1 && m.from == m.to) m.to = (m.to + 1) % ranks;
    }
    auto part = std::make_unique<Part>(comm, rank, ranks, i, drawn[i], drawn[i].on_stream ? stream : nullptr);
    wrong = part->start(own);
    if (drawn[i].on_stream) {
      queued.push_back(std::move(part));
    } else if (wrong.empty()) {
      wrong = part->check();
    }
  }
  if (tuttiStreamDestroy(stream) != tuttiSuccess && wrong.empty())
    wrong = "stream: " + std::string(tuttiGetLastError(comm));
  for (const auto& part : queued) {
    if (wrong.empty()) wrong = part->check();
  }
  return wrong.empty() ? wrong : wrong + ", seed " + std::to_string(seed);
}

void check_programs(RunJob run, int ranks, const std::string& transports, std::uint32_t programs, std::size_t most) {
  INFO(transports << ", " << ranks << " ranks");
  const auto outcomes = run(ranks, transports, [&](tuttiComm_t comm, int rank, int n) {
    for (std::uint32_t seed = 1; seed <= programs; ++seed) {
      std::string wrong = run_program(comm, rank, n, seed, 6, most);
      if (!wrong.empty()) return Outcome{wrong, 0};
    }
    return Outcome{};
  });
  REQUIRE(wrong_of(outcomes) == "");
}

constexpr std::uint32_t kShare = kThreadSanitizer ? 30 : kAddressSanitizer ? 4 : 1;

}  // namespace

TEST_CASE("random programs of threads", "[threads]") {
  for (const int ranks : {2, 3, 5, 8}) {
    check_programs(run_threads, ranks, "shm", 1500 / kShare, 2000);
    check_programs(run_threads, ranks, "shm", 20 / kShare + 1, 200'000);
  }
  for (const int ranks : {2, 4}) check_programs(run_threads, ranks, "tcp", 200 / kShare, 20'000);
  check_programs(run_threads, 3, "sim:4", 20 / kShare + 1, 2000);
  check_programs(run_threads, 1, "shm", 1, 100);
}

TEST_CASE("random programs of processes", "[processes]") {
  for (const int ranks : {2, 3, 4}) {
    check_programs(run_processes, ranks, "shm", 1500 / kShare, 2000);
    check_programs(run_processes, ranks, "shm", 20 / kShare + 1, 200'000);
  }
  check_programs(run_processes, 3, "tcp", 200 / kShare, 20'000);
}

// One thread drives several ranks, as in programs with several devices.
TEST_CASE("a group over the communicators of one thread", "[threads]") {
  std::vector<tuttiComm_t> comms(3);
  REQUIRE(tuttiCommInitAll(comms.data(), 3, nullptr) == tuttiSuccess);
  std::vector<Values> data(3, Values(1000));
  std::vector<Values> neighbour(3, Values(10));
  for (std::uint32_t round = 1; round < 50; ++round) {
    REQUIRE(tuttiGroupStart() == tuttiSuccess);
    for (std::uint32_t r = 0; r < 3; ++r) {
      data[r].assign(1000, r + round);
      REQUIRE(tuttiAllReduce(data[r].data(), data[r].data(), 1000, tuttiUint32, tuttiSum, comms[r], nullptr) ==
              tuttiSuccess);
      REQUIRE(tuttiSend(&round, 1, tuttiUint32, static_cast<int>((r + 1) % 3), comms[r], nullptr) == tuttiSuccess);
      REQUIRE(tuttiRecv(neighbour[r].data(), 1, tuttiUint32, static_cast<int>((r + 2) % 3), comms[r], nullptr) ==
              tuttiSuccess);
    }
    REQUIRE(tuttiGroupEnd() == tuttiSuccess);
    for (std::uint32_t r = 0; r < 3; ++r) {
      REQUIRE(data[r] == Values(1000, 3 + 3 * round));
      REQUIRE(neighbour[r][0] == round);
    }
  }
  for (tuttiComm_t comm : comms) CHECK(tuttiCommDestroy(comm) == tuttiSuccess);
}

// Before any collective: the history has no call that the warning about the wait could name.
TEST_CASE("a receive waits for a send that comes late", "[threads]") {
  for (const bool in_group : {false, true}) {
    std::vector<tuttiComm_t> comms(2);
    REQUIRE(tuttiCommInitAll(comms.data(), 2, nullptr) == tuttiSuccess);
    std::uint32_t received = 0;
    tuttiResult_t result = tuttiInternalError;
    std::thread receiver([&] {
      if (in_group) (void)tuttiGroupStart();
      result = tuttiRecv(&received, 1, tuttiUint32, 1, comms[0], nullptr);
      if (in_group) result = tuttiGroupEnd();
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    const std::uint32_t sent = 7;
    CHECK(tuttiSend(&sent, 1, tuttiUint32, 0, comms[1], nullptr) == tuttiSuccess);
    receiver.join();
    CHECK(result == tuttiSuccess);
    CHECK(received == 7);
    for (tuttiComm_t comm : comms) CHECK(tuttiCommDestroy(comm) == tuttiSuccess);
  }
}

// The communicator keeps bound operations by peer.
TEST_CASE("single transfers with alternating peers", "[threads]") {
  constexpr int kRanks = 66;
  std::vector<tuttiComm_t> comms(kRanks);
  REQUIRE(tuttiCommInitAll(comms.data(), kRanks, nullptr) == tuttiSuccess);
  for (std::uint32_t round = 0; round < 10; ++round) {
    for (const int peer : {1, 65, 2, 65, 65, 1}) {
      const auto other = static_cast<std::size_t>(peer);
      const auto sent = static_cast<std::uint32_t>(peer) << 16 | round;
      const std::array<std::uint32_t, 3> returned{sent, round, 1};
      std::uint32_t received = 0;
      std::array<std::uint32_t, 3> back{};
      // Short enough not to wait for the receiver, which is this thread.
      REQUIRE(tuttiSend(&sent, 1, tuttiUint32, peer, comms[0], nullptr) == tuttiSuccess);
      REQUIRE(tuttiRecv(&received, 1, tuttiUint32, 0, comms[other], nullptr) == tuttiSuccess);
      REQUIRE(tuttiSend(returned.data(), returned.size(), tuttiUint32, 0, comms[other], nullptr) == tuttiSuccess);
      REQUIRE(tuttiRecv(back.data(), back.size(), tuttiUint32, peer, comms[0], nullptr) == tuttiSuccess);
      REQUIRE(received == sent);
      REQUIRE(back == returned);
    }
  }
  for (tuttiComm_t comm : comms) CHECK(tuttiCommDestroy(comm) == tuttiSuccess);
}

// The operations of a group's communicators in one stream run after earlier ones, side by side.
TEST_CASE("the communicators of a group share a stream", "[threads]") {
  std::vector<tuttiComm_t> comms(3);
  REQUIRE(tuttiCommInitAll(comms.data(), 3, nullptr) == tuttiSuccess);
  tuttiStream_t stream = nullptr;
  REQUIRE(tuttiStreamCreate(&stream) == tuttiSuccess);
  std::vector<Values> data(3, Values(1000, 1));
  for (int round = 0; round < 5; ++round) {
    REQUIRE(tuttiGroupStart() == tuttiSuccess);
    for (std::size_t r = 0; r < 3; ++r) {
      // The last round waits in tuttiGroupEnd for one of them.
      void* const where = round == 4 && r == 1 ? nullptr : stream;
      REQUIRE(tuttiAllReduce(data[r].data(), data[r].data(), 1000, tuttiUint32, tuttiSum, comms[r], where) ==
              tuttiSuccess);
    }
    REQUIRE(tuttiGroupEnd() == tuttiSuccess);
  }
  CHECK(tuttiStreamSynchronize(stream) == tuttiSuccess);
  CHECK(tuttiStreamDestroy(stream) == tuttiSuccess);
  for (const Values& v : data) CHECK(v == Values(1000, 243));
  for (tuttiComm_t comm : comms) CHECK(tuttiCommDestroy(comm) == tuttiSuccess);
}

TEST_CASE("a group with a finalized communicator starts nothing", "[threads]") {
  std::vector<tuttiComm_t> comms(2);
  for (tuttiComm_t& comm : comms) REQUIRE(tuttiCommInitAll(&comm, 1, nullptr) == tuttiSuccess);
  REQUIRE(tuttiCommFinalize(comms[1]) == tuttiSuccess);
  const std::uint32_t sent = 7;
  std::uint32_t received = 0;
  REQUIRE(tuttiGroupStart() == tuttiSuccess);
  for (tuttiComm_t comm : comms)
    CHECK(tuttiAllReduce(&sent, &received, 1, tuttiUint32, tuttiSum, comm, nullptr) == tuttiSuccess);
  CHECK(tuttiGroupEnd() == tuttiInvalidUsage);
  CHECK(received == 0);
  for (tuttiComm_t comm : comms) CHECK(tuttiCommDestroy(comm) == tuttiSuccess);
}

TEST_CASE("a refused call starts nothing of its group", "[threads]") {
  const auto outcomes = run_threads(2, "shm", [&](tuttiComm_t comm, int rank, int) {
    Values v(10);
    const int other = 1 - rank;
    const auto fails = [](tuttiResult_t a, tuttiResult_t b) { return a == b ? "" : "another result"; };
    const auto expect = [&](tuttiResult_t result, tuttiResult_t expected, Outcome* outcome) {
      outcome->wrong += fails(result, expected);
    };
    Outcome outcome;
    expect(tuttiGroupEnd(), tuttiInvalidUsage, &outcome);
    expect(tuttiSend(v.data(), 1, tuttiUint32, 2, comm, nullptr), tuttiInvalidArgument, &outcome);
    expect(tuttiSend(nullptr, 1, tuttiUint32, other, comm, nullptr), tuttiInvalidArgument, &outcome);
    expect(tuttiSend(v.data(), 1, tuttiUint32, rank, comm, nullptr), tuttiInvalidUsage, &outcome);
    // The peer sends nothing: the call can only end if nothing is started.
    expect(tuttiGroupStart(), tuttiSuccess, &outcome);
    expect(tuttiRecv(v.data(), 1, tuttiUint32, other, comm, nullptr), tuttiSuccess, &outcome);
    expect(tuttiRecv(v.data(), 1, tuttiUint32, -1, comm, nullptr), tuttiInvalidArgument, &outcome);
    expect(tuttiGroupEnd(), tuttiInvalidArgument, &outcome);
    expect(tuttiGroupStart(), tuttiSuccess, &outcome);
    expect(tuttiRecv(v.data(), 1, tuttiUint32, other, comm, nullptr), tuttiSuccess, &outcome);
    expect(tuttiSend(v.data(), 2, tuttiUint32, rank, comm, nullptr), tuttiSuccess, &outcome);
    expect(tuttiRecv(v.data(), 1, tuttiUint32, rank, comm, nullptr), tuttiSuccess, &outcome);
    expect(tuttiGroupEnd(), tuttiInvalidUsage, &outcome);
    // Also from the communicator's last error.
    if (std::string(tuttiGetLastError(comm)).find("to itself") == std::string::npos) {
      outcome.wrong += std::string("told ") + tuttiGetLastError(comm);
    }
    expect(tuttiGroupStart(), tuttiSuccess, &outcome);
    expect(tuttiRecv(v.data(), 1, tuttiUint32, other, comm, nullptr), tuttiSuccess, &outcome);
    expect(tuttiCommDestroy(comm), tuttiInvalidUsage, &outcome);
    if (std::string(tuttiGetLastError(comm)).find("Call tuttiGroupEnd first") == std::string::npos) {
      outcome.wrong += std::string("told ") + tuttiGetLastError(comm);
    }
    expect(tuttiRecv(v.data(), 1, tuttiUint32, -1, comm, nullptr), tuttiInvalidArgument, &outcome);
    expect(tuttiGroupEnd(), tuttiInvalidArgument, &outcome);
    expect(tuttiBarrier(comm, nullptr), tuttiSuccess, &outcome);
    return outcome;
  });
  CHECK(wrong_of(outcomes) == "");
}

TEST_CASE("a communicator can be destroyed although a group has refused a call of it", "[threads]") {
  tuttiComm_t comm = nullptr;
  REQUIRE(tuttiCommInitAll(&comm, 1, nullptr) == tuttiSuccess);
  std::uint32_t value = 7;
  REQUIRE(tuttiGroupStart() == tuttiSuccess);
  CHECK(tuttiSend(&value, 1, tuttiUint32, 0, comm, nullptr) == tuttiSuccess);
  CHECK(tuttiSend(&value, 1, tuttiUint32, 3, comm, nullptr) == tuttiInvalidArgument);
  CHECK(tuttiCommDestroy(comm) == tuttiSuccess);
  CHECK(tuttiGroupEnd() == tuttiInvalidArgument);
}

TEST_CASE("sends and receives that do not match get an error", "[threads]") {
  enum class Fault { kCount, kCollective, kBlock };
  for (const auto& [fault, transport] :
       {std::pair{Fault::kCount, "shm"}, {Fault::kCollective, "shm"}, {Fault::kBlock, "shm"}, {Fault::kBlock, "tcp"}}) {
    const auto outcomes = run_threads(2, transport, [&, fault = fault](tuttiComm_t comm, int rank, int) {
      Values v(10);
      Values to(10);
      tuttiResult_t result = tuttiSuccess;
      if (fault == Fault::kBlock) {
        // Only the rank that waits for the block can know this.
        const std::array<std::size_t, 2> sent{4, rank == 0 ? std::size_t{0} : 4};
        const std::array<std::size_t, 2> received{4, 4};
        result = tuttiAlltoAllV(v.data(), sent.data(), nullptr, to.data(), received.data(), nullptr, tuttiUint32, comm,
                                nullptr);
      } else {
        if (rank == 0) result = tuttiSend(v.data(), 3, tuttiUint32, 1, comm, nullptr);
        if (rank == 1 && fault == Fault::kCount) result = tuttiRecv(v.data(), 4, tuttiUint32, 0, comm, nullptr);
      }
      // A rank that has completed the first may get the error in the second.
      for (int i = 0; i < 3 && result == tuttiSuccess; ++i) result = tuttiBarrier(comm, nullptr);
      if (result != tuttiMismatch) return Outcome{"result " + std::to_string(result), 0};
      const std::string text = tuttiGetLastError(comm);
      const char* const told = fault == Fault::kCount ? "rank 0 runs send 1 to rank 1 (count 3, uint32), "
                                                        "rank 1 runs recv 1 from rank 0 (count 4, uint32)"
                                                      : "rank 1 runs ";
      return text.find(told) != std::string::npos ? Outcome{} : Outcome{text, 0};
    });
    INFO(transport << ", fault " << static_cast<int>(fault));
    CHECK(wrong_of(outcomes) == "");
  }
}

}  // namespace tutti::internal::test
