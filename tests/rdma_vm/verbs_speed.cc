// What the verbs transport reaches on the devices that TUTTI_VERBS names: a one-way stream of 1 MiB messages, and an
// exchange of 8 bytes, between two threads. To be compared with ib_write_bw and ib_write_lat of the same boot.
//   verbs_speed            prints "stream N.NN Gb/s" and "exchange N.NN us" (one way), medians
#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <exception>
#include <functional>
#include <stdexcept>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "verbs_pair.h"

namespace {

using namespace tutti;
using namespace tutti::transport;

constexpr std::size_t kStreamBytes = 1 << 20;
constexpr int kMessages = 24;
constexpr int kExchanges = 400;
constexpr int kRounds = 7;
constexpr Fingerprint kPrint{1, 2, 3};

void send_all(Link& link, const Source& source) {
  for (std::size_t done = 0; done < source.size;) {
    done += link.send().push(kPrint, source, done, source.size - done);
    if (!link.send().status().is_ok()) throw std::runtime_error(link.send().status().message());
  }
}

// Into `target`, by its place or by a copy, as an operation does.
void receive_all(Link& link, const Source& target) {
  auto* const to = const_cast<std::byte*>(target.base);
  for (std::size_t done = 0; done < target.size;) {
    const RecvLane::View view = link.recv().peek(target.size - done);
    if (view.size > 0 && view.data != to + done) std::copy(view.data, view.data + view.size, to + done);
    link.recv().consume(view.size);
    done += view.size;
    if (view.size == 0 && !link.recv().status().is_ok()) throw std::runtime_error(link.recv().status().message());
  }
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

double stream_gbits(rdma_vm::LinkPair& pair) {
  std::vector<std::byte> from(kStreamBytes, std::byte{1});
  std::vector<std::byte> to(kStreamBytes);
  const Source source{from.data(), from.size(), 0, 0, 0};
  const Source target{to.data(), to.size(), 0, 0, 0};
  const std::int64_t begin = now_ns();
  std::thread receiver([&] {
    pair.b->enter();
    std::uint64_t offered = pair.b->recv().consumed();
    const std::uint64_t end = offered + kStreamBytes * kMessages;
    for (int i = 0; i < kMessages; ++i) {
      // The next message's place, while this one arrives.
      for (; offered < end && offered <= pair.b->recv().consumed() + kStreamBytes; offered += kStreamBytes) {
        pair.b->recv().offer(offered, target, 0, kStreamBytes);
      }
      receive_all(*pair.b, target);
    }
    pair.b->leave();
  });
  pair.a->enter();
  for (int i = 0; i < kMessages; ++i) send_all(*pair.a, source);
  while (pair.a->send().completed() != pair.a->send().taken()) std::this_thread::yield();
  pair.a->leave();
  receiver.join();
  return static_cast<double>(kStreamBytes) * kMessages * 8 / static_cast<double>(now_ns() - begin);
}

double exchange_us(rdma_vm::LinkPair& pair) {
  std::array<std::byte, 8> ping{};
  std::array<std::byte, 8> pong{};
  const Source a{ping.data(), ping.size(), 0, 0, 0};
  const Source b{pong.data(), pong.size(), 0, 0, 0};
  const std::int64_t begin = now_ns();
  std::thread other([&] {
    for (int i = 0; i < kExchanges; ++i) {
      receive_all(*pair.b, b);
      send_all(*pair.b, b);
    }
  });
  for (int i = 0; i < kExchanges; ++i) {
    send_all(*pair.a, a);
    receive_all(*pair.a, a);
  }
  other.join();
  return static_cast<double>(now_ns() - begin) / 1000 / kExchanges / 2;
}

}  // namespace

int main() {
  try {
    rdma_vm::LinkPair pair = rdma_vm::connect_links();
    std::vector<double> gbits;
    std::vector<double> us;
    for (int round = 0; round < kRounds; ++round) {
      gbits.push_back(stream_gbits(pair));
      us.push_back(exchange_us(pair));
    }
    std::printf("stream %.3f Gb/s\nexchange %.2f us\n", median(gbits), median(us));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "verbs_speed: %s\n", error.what());
    return 1;
  }
  return 0;
}
