// The permanent lower bound of a small all-reduce between two processes: each writes 8 bytes and a
// sequence number into one cache line of shared memory, spins on the other's line, and adds. No
// library, no interpretation, no error handling beyond a deadline. The rest of tutti's time is the
// cost of its executor.
//
//   yardstick           prints the time of one exchange
//   yardstick SOCKET    both ranks serve perf/compare
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <new>

#include "compare_worker.h"
#include "os/processor.h"

namespace {

constexpr size_t kCacheLineBytes = 64;
constexpr size_t kPayloadBytes = 8;
constexpr int64_t kSpinsBetweenClocks = 1 << 16;
constexpr int64_t kDeadlineNs = 10'000'000'000;

struct alignas(kCacheLineBytes) Line {
  std::atomic<uint64_t> sequence{0};
  std::array<float, 2> payload{};
};
static_assert(sizeof(Line) == kCacheLineBytes);

// Two lines per side, used in turn: a side may be one exchange ahead of the other, never two, so the
// line that it overwrites has been read.
struct Page {
  std::array<std::array<Line, 2>, 2> lines;
};

class Exchange {
 public:
  Exchange(Page& page, int rank) : mine_(page.lines[rank]), theirs_(page.lines[1 - rank]) {}

  // One way and back: `first` sends before it receives. False as of sum().
  [[nodiscard]] bool pass(bool first, const float* input, float* output) {
    const uint64_t sequence = ++sequence_;
    if (first) write(sequence, input);
    const Line& in = theirs_[sequence & 1];
    if (!wait(in, sequence)) return false;
    output[0] = in.payload[0];
    output[1] = in.payload[1];
    if (!first) write(sequence, input);
    return true;
  }

  // output[i] = input[i] + the peer's input[i]. False if the peer does not come within the deadline.
  [[nodiscard]] bool sum(const float* input, float* output) {
    const uint64_t sequence = ++sequence_;
    write(sequence, input);
    const Line& in = theirs_[sequence & 1];
    if (!wait(in, sequence)) return false;
    output[0] = input[0] + in.payload[0];
    output[1] = input[1] + in.payload[1];
    return true;
  }

 private:
  void write(uint64_t sequence, const float* input) {
    Line& out = mine_[sequence & 1];
    out.payload = {input[0], input[1]};
    out.sequence.store(sequence, std::memory_order_release);
  }
  static bool wait(const Line& line, uint64_t sequence) {
    int64_t deadline_ns = 0;
    for (int64_t spin = 1; line.sequence.load(std::memory_order_acquire) != sequence; ++spin) {
      tutti::internal::pause_processor();
      if (spin % kSpinsBetweenClocks != 0) continue;
      const int64_t now_ns = compare_now_ns();
      if (deadline_ns == 0) deadline_ns = now_ns + kDeadlineNs;
      if (now_ns > deadline_ns) return false;
    }
    return true;
  }

  std::array<Line, 2>& mine_;
  std::array<Line, 2>& theirs_;
  uint64_t sequence_ = 0;
};

int prepare(void*, const compare_call* call) {
  const bool known = call->collective == kCompareAllReduce || call->collective == kComparePingPong;
  return known && call->count * sizeof(float) == kPayloadBytes ? 0 : -1;
}

// A rank and its end.
struct Side {
  Exchange& exchange;
  int rank;
};

int perform(void* state, const compare_call* call) {
  const Side& side = *static_cast<Side*>(state);
  const bool done = call->collective == kComparePingPong ? side.exchange.pass(side.rank == 0, call->send, call->recv)
                                                         : side.exchange.sum(call->send, call->recv);
  return done ? 0 : -1;
}

int serve(const char* socket_path, Exchange& exchange, int rank) {
  compare_library library{};
  library.name = "yardstick";
  library.version = "1";
  library.rank = rank;
  library.size = 2;
  Side side{exchange, rank};
  library.state = &side;
  library.allocate = compare_malloc;
  library.release = compare_free;
  library.prepare = prepare;
  library.perform = perform;
  return compare_serve(socket_path, &library);
}

int measure(Exchange& exchange, int rank) {
  constexpr int kBatches = 51;
  constexpr int kExchanges = 20'000;
  std::array<double, kBatches> ns_per_exchange{};
  const std::array<float, 2> input{1.0F, 2.0F};
  std::array<float, 2> output{};
  for (double& ns : ns_per_exchange) {
    const int64_t begin_ns = compare_now_ns();
    for (int i = 0; i < kExchanges; ++i) {
      if (!exchange.sum(input.data(), output.data()) || output[1] != 4.0F) return 1;
    }
    ns = static_cast<double>(compare_now_ns() - begin_ns) / kExchanges;
  }
  std::sort(ns_per_exchange.begin(), ns_per_exchange.end());
  if (rank == 0) {
    printf("8-byte exchange between two processes: min %.3f us, median %.3f us\n", ns_per_exchange[0] / 1000,
           ns_per_exchange[kBatches / 2] / 1000);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 2 || (argc == 2 && argv[1][0] == '-')) {
    fprintf(stderr, "usage: %s [SOCKET]\n", argv[0]);
    return 2;
  }
  void* memory = mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    perror("mmap");
    return 1;
  }
  Page* page = new (memory) Page;
  const pid_t child = fork();
  if (child < 0) {
    perror("fork");
    return 1;
  }
  const int rank = child == 0 ? 1 : 0;
  Exchange exchange(*page, rank);
  const int status = argc == 2 ? serve(argv[1], exchange, rank) : measure(exchange, rank);
  if (child == 0) return status;
  int child_status = 0;
  waitpid(child, &child_status, 0);
  return status != 0 || child_status != 0 ? 1 : 0;
}
