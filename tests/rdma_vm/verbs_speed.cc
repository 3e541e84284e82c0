// What the verbs transport reaches on the devices that TUTTI_VERBS names: a one-way stream of 1 MiB messages, and an
// exchange of 8 bytes, between two threads. To be compared with ib_write_bw and ib_write_lat of the same boot.
//   verbs_speed [stream|exchange]    prints "stream N.NN Gb/s" and "exchange N.NN us" (one way), medians
#include <poll.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <exception>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "os/clock.h"
#include "verbs_pair.h"

namespace {

using namespace tutti::internal;
using namespace tutti::internal::transport;

constexpr std::size_t kStreamBytes = 1 << 20;
constexpr std::size_t kMessages = 24;
// For later messages, at their final positions.
constexpr std::size_t kBuffers = 8;
constexpr int kExchanges = 300;
constexpr int kRounds = 3;
constexpr Fingerprint kFingerprint{1, 2, 3};
// Waits like an operation: looks for a while, then lets other threads run, because soft devices need the processor,
// then sleeps until something completes.
constexpr unsigned kSpins = 500;
constexpr unsigned kYields = 1000;
constexpr int kSleepMs = 50;

void check(const Status& status) {
  if (!status.is_ok()) throw std::runtime_error(status.message());
}

class Wait {
 public:
  explicit Wait(Link& link) : link_(link) {}
  void idle() {
    if (++looks_ <= kSpins) return;
    if (looks_ <= kSpins + kYields) {
      std::this_thread::yield();
      return;
    }
    check(link_.recv().status());
    if (!link_.arm()) return;
    pollfd fd{link_.wait_fds()[0], POLLIN, 0};
    (void)::poll(&fd, 1, kSleepMs);
    link_.disarm();
  }
  void progress() { looks_ = 0; }

 private:
  Link& link_;
  unsigned looks_ = 0;
};

void send_all(Link& link, const Source& source) {
  Wait wait(link);
  for (std::size_t done = 0; done < source.size;) {
    const std::size_t n = link.send().push(kFingerprint, source, done, source.size - done);
    done += n;
    n > 0 ? wait.progress() : wait.idle();
  }
}

// Into `target`, in place or by a copy, like an operation.
void receive_all(Link& link, const Source& target) {
  auto* const to = const_cast<std::byte*>(target.base);
  Wait wait(link);
  for (std::size_t done = 0; done < target.size;) {
    const RecvLane::View view = link.recv().peek(target.size - done);
    if (view.size == 0) {
      wait.idle();
      continue;
    }
    if (view.data != to + done) std::copy(view.data, view.data + view.size, to + done);
    if (link.recv().consume(view.size)) done += view.size;
    wait.progress();
  }
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

double stream_gbits(rdma_vm::LinkPair& pair, const std::vector<std::byte>& from, const std::vector<std::byte>& to) {
  const Source source{from.data(), from.size(), 0, 0, 0};
  const Source buffers{to.data(), to.size(), 0, 0, 0};
  const std::int64_t begin = now_ns();
  std::thread receiver([&] {
    pair.b->begin_operation({});
    RecvLane& in = pair.b->recv();
    const std::uint64_t first = in.consumed();
    std::size_t advertised = 0;
    for (std::size_t i = 0; i < kMessages; ++i) {
      for (; advertised < std::min(kMessages, i + kBuffers); ++advertised) {
        in.advertise(first + advertised * kStreamBytes, buffers, advertised % kBuffers * kStreamBytes, kStreamBytes);
      }
      receive_all(*pair.b, {to.data() + i % kBuffers * kStreamBytes, kStreamBytes, 0, 0, 0});
    }
  });
  pair.a->begin_operation({});
  for (std::size_t i = 0; i < kMessages; ++i) send_all(*pair.a, source);
  Wait wait(*pair.a);
  while (pair.a->send().completed() != pair.a->send().taken()) wait.idle();
  receiver.join();
  return static_cast<double>(kStreamBytes * kMessages * 8) / static_cast<double>(now_ns() - begin);
}

// One way, like ib_write_lat: half of a round trip; collected in `us`.
void exchange(rdma_vm::LinkPair& pair, std::vector<double>* us) {
  std::array<std::byte, 8> ping{};
  std::array<std::byte, 8> pong{};
  const Source a{ping.data(), ping.size(), 0, 0, 0};
  const Source b{pong.data(), pong.size(), 0, 0, 0};
  std::thread other([&] {
    for (int i = 0; i < kExchanges; ++i) {
      receive_all(*pair.b, b);
      send_all(*pair.b, b);
    }
  });
  for (int i = 0; i < kExchanges; ++i) {
    const std::int64_t begin = now_ns();
    send_all(*pair.a, a);
    receive_all(*pair.a, a);
    us->push_back(static_cast<double>(now_ns() - begin) / 2000);
  }
  other.join();
}

}  // namespace

int main(int count, char** arguments) {
  const std::string only = count > 1 ? arguments[1] : "";
  try {
    rdma_vm::LinkPair pair = rdma_vm::connect_links();
    std::vector<double> gbits;
    std::vector<double> us;
    // As in ib_write_bw, memory is registered before the time counts.
    const std::vector<std::byte> from(kStreamBytes, std::byte{1});
    const std::vector<std::byte> to(kStreamBytes * kBuffers);
    (void)stream_gbits(pair, from, to);
    for (int round = 0; round < kRounds; ++round) {
      if (only != "exchange") gbits.push_back(stream_gbits(pair, from, to));
      if (only != "stream") exchange(pair, &us);
    }
    if (!gbits.empty()) std::printf("stream %.3f Gb/s\n", median(gbits));
    if (!us.empty()) std::printf("exchange %.2f us\n", median(us));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "verbs_speed: %s\n", error.what());
    return 1;
  }
  return 0;
}
