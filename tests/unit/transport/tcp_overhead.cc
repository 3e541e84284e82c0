// What the tcp transport costs over bare sockets: an 8-byte exchange and a one-way stream over loopback,
// two threads, the two taking turns. Prints medians; only their ratios mean anything.
//   tcp_overhead [streams] [socket buffer bytes]
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "os/clock.h"
#include "socket_pairs.h"
#include "transport/tcp/link.h"

namespace {

using namespace tutti::internal;
using namespace tutti::internal::transport;

constexpr int kExchanges = 2000;
constexpr int kRounds = 15;
constexpr std::int64_t kPatienceMs = 20'000;
constexpr Fingerprint kFingerprint{1, 2, 3};

// Ends the program instead of waiting without end.
class Watch {
 public:
  void idle() {
    if (++count_ % 4096 != 0 || !deadline_.passed()) return;
    std::fprintf(stderr, "nothing moves\n");
    std::_Exit(1);
  }

 private:
  Deadline deadline_ = Deadline::after_ms(kPatienceMs);
  std::uint64_t count_ = 0;
};

// One end, in either direction.
struct Port {
  std::function<void(std::span<const std::byte>)> send;
  std::function<void(std::span<std::byte>)> receive;         // into user memory
  std::function<std::size_t(std::size_t)> receive_in_place;  // touches what arrived in a buffer
};

Port port_over(Link& link) {
  Port port;
  port.send = [&link](std::span<const std::byte> bytes) {
    const Source source{bytes.data(), bytes.size(), 0, 0};
    Watch watch;
    for (std::size_t done = 0; done < bytes.size(); watch.idle()) {
      done += link.send().push(kFingerprint, source, done, bytes.size() - done);
    }
  };
  port.receive = [&link](std::span<std::byte> bytes) {
    Fingerprint fingerprint;
    Watch watch;
    for (std::size_t done = 0; done < bytes.size(); watch.idle()) {
      done += link.recv().pull(bytes.data() + done, bytes.size() - done, &fingerprint);
    }
  };
  port.receive_in_place = [&link](std::size_t n) {
    std::size_t sum = 0;
    Watch watch;
    for (std::size_t done = 0; done < n; watch.idle()) {
      const RecvLane::View view = link.recv().peek(n - done);
      for (std::size_t i = 0; i < view.size; i += 64) sum += static_cast<std::size_t>(view.data[i]);
      if (link.recv().consume(view.size)) done += view.size;
    }
    return sum;
  };
  return port;
}

Port port_over(int fd, std::vector<std::byte>& buffer) {
  Port port;
  port.send = [fd](std::span<const std::byte> bytes) {
    Watch watch;
    while (!bytes.empty()) {
      const ssize_t n = ::send(fd, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
      if (n > 0) bytes = bytes.subspan(static_cast<std::size_t>(n));
      watch.idle();
    }
  };
  port.receive = [fd](std::span<std::byte> bytes) {
    Watch watch;
    while (!bytes.empty()) {
      const ssize_t n = ::recv(fd, bytes.data(), bytes.size(), MSG_DONTWAIT);
      if (n > 0) bytes = bytes.subspan(static_cast<std::size_t>(n));
      watch.idle();
    }
  };
  port.receive_in_place = [fd, &buffer](std::size_t left) {
    std::size_t sum = 0;
    Watch watch;
    while (left > 0) {
      const ssize_t got = ::recv(fd, buffer.data(), std::min(left, buffer.size()), MSG_DONTWAIT);
      const std::size_t n = got > 0 ? static_cast<std::size_t>(got) : 0;
      for (std::size_t i = 0; i < n; i += 64) sum += static_cast<std::size_t>(buffer[i]);
      left -= n;
      watch.idle();
    }
    return sum;
  };
  return port;
}

// Microseconds of one exchange: both send, then both receive.
double exchange_us(const Port& a, const Port& b) {
  const auto run = [](const Port& port) {
    std::array<std::byte, 8> out{};
    std::array<std::byte, 8> in{};
    for (int i = 0; i < kExchanges; ++i) {
      port.send(out);
      port.receive(in);
    }
  };
  std::thread peer([&] { run(b); });
  const std::int64_t begin = now_ns();
  run(a);
  const std::int64_t end = now_ns();
  peer.join();
  return static_cast<double>(end - begin) / 1e3 / kExchanges;
}

// GB/s one way, ended by an 8-byte answer.
double stream_gbs(const Port& a, const Port& b, std::size_t bytes, bool in_place, int repeats) {
  static std::vector<std::byte> source(32 << 20, std::byte{1});
  static std::vector<std::byte> target(32 << 20, std::byte{2});
  std::array<std::byte, 8> answer{};
  std::thread peer([&] {
    for (int i = 0; i < repeats; ++i) {
      if (in_place) {
        b.receive_in_place(bytes);
      } else {
        b.receive({target.data(), bytes});
      }
      b.send(answer);
    }
  });
  std::array<std::byte, 8> reply{};
  const std::int64_t begin = now_ns();
  for (int i = 0; i < repeats; ++i) {
    a.send({source.data(), bytes});
    a.receive(reply);
  }
  const std::int64_t end = now_ns();
  peer.join();
  return static_cast<double>(bytes) * repeats / static_cast<double>(end - begin);
}

void compare(const char* what, const char* unit, const std::function<double()>& bare,
             const std::function<double()>& transport) {
  std::vector<double> first;
  std::vector<double> second;
  for (int i = 0; i < kRounds; ++i) {
    first.push_back(bare());
    second.push_back(transport());
  }
  std::sort(first.begin(), first.end());
  std::sort(second.begin(), second.end());
  const double x = first[kRounds / 2];
  const double y = second[kRounds / 2];
  std::printf("%-28s bare %8.3f %-5s tcp %8.3f %-5s tcp/bare %.3f\n", what, x, unit, y, unit, y / x);
}

}  // namespace

int main(int argc, char** argv) {
  const int streams = argc > 1 ? std::atoi(argv[1]) : 1;
  tcp::Options options;
  options.socket_buffer_bytes = argc > 2 ? std::atoi(argv[2]) : 0;
  auto [bare_a, bare_b] = conformance::connected(conformance::Family::kIpv4, 1);
  auto [fds_a, fds_b] = conformance::connected(conformance::Family::kIpv4, streams);
  // The kernel's defaults stay for the bare sockets, so that the effect of a buffer size on the links can be judged; 8
  // bytes that await an answer are not delayed by Nagle's algorithm.
  auto link_a = tcp::make_link(std::move(fds_a), options);
  auto link_b = tcp::make_link(std::move(fds_b), options);
  if (!link_a.is_ok() || !link_b.is_ok()) return 1;
  std::vector<std::byte> buffer_a(128 * 1024);
  std::vector<std::byte> buffer_b(128 * 1024);
  const Port raw_a = port_over(bare_a.front().get(), buffer_a);
  const Port raw_b = port_over(bare_b.front().get(), buffer_b);
  const Port tcp_a = port_over(**link_a);
  const Port tcp_b = port_over(**link_b);
  compare(
      "8 B exchange", "us", [&] { return exchange_us(raw_a, raw_b); }, [&] { return exchange_us(tcp_a, tcp_b); });
  for (const std::size_t bytes : {std::size_t{128} << 10, std::size_t{2} << 20, std::size_t{32} << 20}) {
    for (const bool in_place : {false, true}) {
      const std::string name = std::to_string(bytes >> 10) + " KiB " + (in_place ? "in place" : "to memory");
      const int repeats = static_cast<int>((std::size_t{64} << 20) / bytes);
      compare(
          name.c_str(), "GB/s", [&] { return stream_gbs(raw_a, raw_b, bytes, in_place, repeats); },
          [&] { return stream_gbs(tcp_a, tcp_b, bytes, in_place, repeats); });
    }
  }
  return 0;
}
