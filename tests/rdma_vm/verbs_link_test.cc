// The verbs transport on a real device: conformance, and errors that only it can make. Runs in a guest of the rig, on
// the devices that TUTTI_VERBS names.
#include <netinet/in.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <fstream>
#include <thread>
#include <vector>

#include "catch_compat.h"
#include "os/clock.h"
#include "os/unique_fd.h"
#include "sim/faulty.h"
#include "transport/checked/link.h"
#include "transport/verbs/link.h"
#include "unit/transport/conformance.h"
#include "unit/transport/stream_check.h"
#include "verbs_pair.h"

namespace tutti::internal::transport::verbs {

struct QueuePairFault {
  // As if the device had reported an error.
  static void raise(QueuePair& pair) {
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_ERR;
    REQUIRE(pair.device().library().modify_qp(pair.pair_, &attributes, IBV_QP_STATE) == 0);
  }
};

}  // namespace tutti::internal::transport::verbs

using namespace tutti::internal;
using namespace tutti::internal::transport;
using conformance::fingerprint_of;

namespace {

constexpr std::int64_t kPatienceMs = 60'000;

template <class F>
bool eventually(F&& f) {
  const Deadline deadline = Deadline::after_ms(kPatienceMs);
  while (!f()) {
    if (deadline.passed()) return false;
  }
  return true;
}

std::vector<std::byte> pattern(std::size_t n, unsigned seed) {
  std::vector<std::byte> bytes(n);
  for (std::size_t i = 0; i < n; ++i) bytes[i] = static_cast<std::byte>((i * 37 + i / 251 + seed) & 0xff);
  return bytes;
}

Source source_of(const void* base, std::size_t size) {
  return {static_cast<const std::byte*>(base), size, 0, 0, 0};
}

// Sends all of `from` into `to`, with the buffer advertised if `advertises`. Counts the bytes that were put directly.
std::size_t transfer(rdma_vm::LinkPair& pair, const Source& from, std::byte* to, bool advertises) {
  pair.a->begin_operation({});
  pair.b->begin_operation({});
  RecvLane& in = pair.b->recv();
  SendLane& out = pair.a->send();
  if (advertises) in.advertise(in.consumed(), source_of(to, from.size), 0, from.size);
  std::size_t sent = 0;
  std::size_t received = 0;
  std::size_t in_place = 0;
  // The advertisement arrives at some time; until then the sender does not use it.
  if (advertises) {
    const Deadline soon = Deadline::after_ms(50);
    while (!soon.passed()) out.progress();
  }
  REQUIRE(eventually([&] {
    sent += out.push(fingerprint_of(1), from, sent, from.size - sent);
    const RecvLane::View view = in.peek(from.size - received);
    if (view.size > 0) {
      if (view.data == to + received) {
        in_place += view.size;
      } else {
        std::memcpy(to + received, view.data, view.size);
      }
      if (in.consume(view.size)) received += view.size;
    }
    return received == from.size || !out.status().is_ok() || !in.status().is_ok();
  }));
  CHECK(out.status().message().empty());
  CHECK(in.status().message().empty());
  REQUIRE(sent == from.size);
  REQUIRE(eventually([&] { return out.completed() == out.taken(); }));
  return in_place;
}

// TCP uses every second port of the kernel's range, which is small here.
std::vector<UniqueFd> take_ports() {
  int first = 0;
  int last = 0;
  std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> first >> last;
  REQUIRE(first > 0);
  REQUIRE(last - first < 1000);
  std::vector<UniqueFd> sockets;
  for (int port = first; port <= last; port += 2) {
    UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0)
      sockets.push_back(std::move(socket));
  }
  return sockets;
}

}  // namespace

TEST_CASE("iWARP takes no port that TCP has", "[.few_ports]") {
  const std::vector<UniqueFd> taken = take_ports();
  REQUIRE(taken.size() > 16);
  for (int i = 0; i < 16; ++i) {
    rdma_vm::LinkPair pair = rdma_vm::connect_links();
    CHECK(pair.a->send().status().is_ok());
  }
}

TEST_CASE("verbs is a transport") {
  conformance::check({"verbs",
                      [](std::uint64_t) {
                        rdma_vm::LinkPair pair = rdma_vm::connect_links();
                        return conformance::Pair{nullptr, std::move(pair.a), std::move(pair.b), -1};
                      },
                      true});
}

TEST_CASE("with checksums, a byte that changes on its way is an error") {
  const std::vector<std::byte> sent = pattern(300'000, 7);
  for (const std::uint64_t at : {std::uint64_t{0}, std::uint64_t{15}, std::uint64_t{16}, std::uint64_t{100'000}}) {
    rdma_vm::LinkPair plain = rdma_vm::connect_links();
    const auto a = checked::make_checked(std::move(plain.a), 1);
    auto damaging = sim::make_faulty(std::move(plain.b), 0, {}, {.damage_at_byte = at});
    const auto b = checked::make_checked(std::move(damaging), 0);
    std::size_t taken = 0;
    REQUIRE(eventually([&] {
      if (taken < sent.size())
        taken += a->send().push(fingerprint_of(1), source_of(sent.data(), sent.size()), taken, sent.size() - taken);
      a->send().progress();
      const RecvLane::View view = b->recv().peek(sent.size());
      (void)b->recv().consume(view.size);
      return !b->recv().status().is_ok();
    }));
    CHECK(b->recv().status().message().find("damaged data from rank 0 over verbs") != std::string::npos);
  }
}

TEST_CASE("Large messages arrive where the receiver has advertised a buffer") {
  rdma_vm::LinkPair pair = rdma_vm::connect_links();
  constexpr std::size_t kBytes = 700'000;
  std::vector<std::byte> bytes(kBytes);
  std::vector<std::byte> copy(kBytes);
  for (unsigned round = 0; round < 6; ++round) {
    INFO("round " << round);
    std::memcpy(bytes.data(), pattern(kBytes, round).data(), kBytes);
    const bool advertises = round % 2 == 0;
    const std::size_t in_place = transfer(pair, source_of(bytes.data(), kBytes), copy.data(), advertises);
    CHECK(copy == bytes);
    // The advertisement may be too late for the first part.
    if (advertises) CHECK(in_place > kBytes / 4);
    if (!advertises) CHECK(in_place == 0);
  }
}

TEST_CASE("Memory that was unmapped and mapped again sends what it shows now") {
  rdma_vm::LinkPair pair = rdma_vm::connect_links();
  constexpr std::size_t kBytes = 256 * 1024;
  std::vector<std::byte> copy(kBytes);
  void* wanted = nullptr;
  for (unsigned round = 0; round < 10; ++round) {
    void* const p = ::mmap(wanted, kBytes, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | (wanted != nullptr ? MAP_FIXED : 0), -1, 0);
    REQUIRE(p != MAP_FAILED);
    wanted = p;
    for (unsigned again = 0; again < 2; ++again) {
      const std::vector<std::byte> bytes = pattern(kBytes, round * 2 + again);
      std::memcpy(p, bytes.data(), kBytes);
      transfer(pair, source_of(p, kBytes), copy.data(), false);
      REQUIRE(copy == bytes);
    }
    // Destroyed in each way that a program has.
    if (round % 3 == 0) {
      REQUIRE(::munmap(p, kBytes) == 0);
    } else if (round % 3 == 1) {
      REQUIRE(::madvise(p, kBytes, MADV_DONTNEED) == 0);
    }
  }
  ::munmap(wanted, kBytes);
}

TEST_CASE("Memory that was unmapped and mapped again receives where it is now") {
  rdma_vm::LinkPair pair = rdma_vm::connect_links();
  constexpr std::size_t kBytes = 256 * 1024;
  void* wanted = nullptr;
  for (unsigned round = 0; round < 6; ++round) {
    void* const p = ::mmap(wanted, kBytes, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | (wanted != nullptr ? MAP_FIXED : 0), -1, 0);
    REQUIRE(p != MAP_FAILED);
    wanted = p;
    const std::vector<std::byte> bytes = pattern(kBytes, round);
    transfer(pair, source_of(bytes.data(), kBytes), static_cast<std::byte*>(p), true);
    REQUIRE(std::memcmp(p, bytes.data(), kBytes) == 0);
    if (round % 2 == 0) REQUIRE(::munmap(p, kBytes) == 0);
  }
  ::munmap(wanted, kBytes);
}

TEST_CASE("A revoked link fails on both sides and touches no memory") {
  rdma_vm::LinkPair pair = rdma_vm::connect_links();
  const std::vector<std::byte> bytes = pattern(4 << 20, 1);
  const Source source = source_of(bytes.data(), bytes.size());
  pair.a->begin_operation({});
  std::size_t sent = 0;
  for (int i = 0; i < 100; ++i) sent += pair.a->send().push(fingerprint_of(1), source, sent, bytes.size() - sent);
  REQUIRE(sent > 0);
  pair.a->revoke();
  CHECK(pair.a->revoked());
  CHECK(pair.a->send().push(fingerprint_of(1), source, sent, 1000) == 0);
  CHECK_FALSE(pair.a->send().status().is_ok());
  // The other side notices when it sends.
  std::size_t pushed = 0;
  REQUIRE(eventually([&] {
    pushed += pair.b->send().push(fingerprint_of(1), source, pushed % 1000, 1000);
    pair.b->send().progress();
    return !pair.b->send().status().is_ok();
  }));
  CHECK(pair.b->send().status().code() == Code::kRemoteError);
  CHECK(pair.b->send().status().message().find("rank 0") != std::string::npos);
}

TEST_CASE("A queue pair that the device puts into error fails the link on both sides") {
  rdma_vm::LinkPair pair = rdma_vm::connect_links();
  const std::vector<std::byte> bytes = pattern(20'000, 1);
  const Source source = source_of(bytes.data(), bytes.size());
  REQUIRE(pair.a->send().push(fingerprint_of(1), source, 0, 1000) == 1000);
  REQUIRE(eventually([&] { return pair.b->recv().peek(1000).size == 1000; }));
  verbs::QueuePairFault::raise(dynamic_cast<verbs::VerbsLink&>(*pair.a).connection().pairs().front());
  std::size_t pushed = 0;
  for (Link* link : {pair.a.get(), pair.b.get()}) {
    REQUIRE(eventually([&] {
      pushed += link->send().push(fingerprint_of(1), source, pushed % 1000, 15'000);
      link->send().progress();
      return !link->send().status().is_ok();
    }));
    const Status status = link->send().status();
    INFO(status.message());
    CHECK((status.code() == Code::kRemoteError || status.code() == Code::kSystemError));
    CHECK(status.message().find("verbs: ") != std::string::npos);
    CHECK(status.message().find("status ") != std::string::npos);
    CHECK(status.message().find(" port 1") != std::string::npos);
  }
  // What had arrived before can still be read.
  CHECK(pair.b->recv().peek(1000).size == 1000);
}

TEST_CASE("A peer that leaves with everything that was sent to it is not an error for the sender") {
  rdma_vm::LinkPair pair = rdma_vm::connect_links();
  const std::vector<std::byte> bytes = pattern(200'000, 1);
  std::vector<std::byte> copy(bytes.size());
  transfer(pair, source_of(bytes.data(), bytes.size()), copy.data(), false);
  pair.b.reset();
  REQUIRE(eventually([&] { return !pair.a->recv().status().is_ok() || !pair.a->send().status().is_ok(); }));
  CHECK(pair.a->recv().status().code() == Code::kRemoteError);
  rdma_vm::LinkPair again = rdma_vm::connect_links();
  transfer(again, source_of(bytes.data(), bytes.size()), copy.data(), false);
  again.b.reset();
  const Deadline soon = Deadline::after_ms(300);
  while (!soon.passed()) {
    CHECK(again.a->send().status().is_ok());
    CHECK(again.a->send().completed() == again.a->send().taken());
    CHECK(again.a->flushed());
  }
}

TEST_CASE("The last data arrives although the link ends") {
  for (int round = 0; round < 20; ++round) {
    rdma_vm::LinkPair pair = rdma_vm::connect_links();
    const std::vector<std::byte> bytes = pattern(60'000, static_cast<unsigned>(round));
    const Source source = source_of(bytes.data(), bytes.size());
    std::size_t sent = 0;
    REQUIRE(eventually([&] {
      sent += pair.a->send().push(fingerprint_of(1), source, sent, bytes.size() - sent);
      return sent == bytes.size();
    }));
    pair.a.reset();
    std::vector<std::byte> copy;
    REQUIRE(eventually([&] {
      const RecvLane::View view = pair.b->recv().peek(bytes.size());
      copy.insert(copy.end(), view.data, view.data + view.size);
      REQUIRE(pair.b->recv().consume(view.size));
      return copy.size() == bytes.size();
    }));
    REQUIRE(copy == bytes);
  }
}

TEST_CASE("Links of one communicator wake by one descriptor, each for itself and for the others") {
  rdma_vm::TwoRanks ranks;
  std::vector<rdma_vm::LinkPair> pairs;
  for (int i = 0; i < 3; ++i) pairs.push_back(ranks.connect());
  for (const auto& pair : pairs) {
    CHECK(pair.a->wait_fds()[0] == pairs[0].a->wait_fds()[0]);
    CHECK(pair.b->wait_fds()[0] == pairs[0].b->wait_fds()[0]);
  }
  constexpr std::size_t kMessages = 300;
  const std::vector<std::byte> bytes = pattern(1000, 1);
  std::atomic<std::size_t> seen{0};
  std::atomic<bool> over{false};
  // One after the other: each is sent when the one before has been seen, so no earlier completion helps.
  std::thread sender([&] {
    for (std::size_t i = 0; i < kMessages && !over; ++i) {
      while (seen < i && !over) std::this_thread::yield();
      if (i % 8 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
      Link& link = *pairs[i % pairs.size()].a;
      while (link.send().push(fingerprint_of(1), source_of(bytes.data(), bytes.size()), 0, bytes.size()) == 0 && !over)
        std::this_thread::yield();
    }
  });
  std::size_t overslept = 0;
  const auto take = [&] {
    for (const auto& pair : pairs) {
      const RecvLane::View view = pair.b->recv().peek(bytes.size());
      if (view.size > 0 && pair.b->recv().consume(view.size) && view.size == bytes.size()) ++seen;
    }
  };
  const Deadline deadline = Deadline::after_ms(kPatienceMs);
  while (seen < kMessages && !deadline.passed()) {
    const std::size_t before = seen;
    take();
    if (seen > before) continue;
    if (!std::all_of(pairs.begin(), pairs.end(), [](const auto& pair) { return pair.b->arm(); })) continue;
    pollfd fd{pairs[0].b->wait_fds()[0], POLLIN, 0};
    const bool woken = ::poll(&fd, 1, 5000) == 1;
    pairs[seen % pairs.size()].b->disarm();
    if (woken) continue;
    take();
    if (seen > before) ++overslept;
  }
  over = true;
  sender.join();
  CHECK(seen == kMessages);
  CHECK(overslept == 0);
}

TEST_CASE("The completions of an ended link do not go to the next one, but its room does") {
  rdma_vm::TwoRanks ranks;
  rdma_vm::LinkPair stays = ranks.connect();
  std::vector<std::byte> copy(60'000);
  for (unsigned round = 0; round < 12; ++round) {
    INFO("round " << round);
    const std::vector<std::byte> bytes = pattern(60'000, round);
    const Source source = source_of(bytes.data(), bytes.size());
    rdma_vm::LinkPair ends = ranks.connect();
    // Its completions are in the queues, on both sides, when it is destroyed.
    std::size_t sent = 0;
    for (int i = 0; i < 8; ++i) sent += ends.a->send().push(fingerprint_of(1), source, sent, 100);
    REQUIRE(sent > 0);
    (round % 2 == 0 ? ends.a : ends.b).reset();
    transfer(stays, source, copy.data(), false);
    REQUIRE(copy == bytes);
    ends = {};
    rdma_vm::LinkPair next = ranks.connect();
    transfer(next, source, copy.data(), true);
    REQUIRE(copy == bytes);
    transfer(stays, source, copy.data(), true);
    REQUIRE(copy == bytes);
  }
}

TEST_CASE("A link that fails leaves the others of its communicator as they are") {
  rdma_vm::TwoRanks ranks;
  rdma_vm::LinkPair stays = ranks.connect();
  rdma_vm::LinkPair fails = ranks.connect();
  const std::vector<std::byte> bytes = pattern(200'000, 1);
  std::vector<std::byte> copy(bytes.size());
  verbs::QueuePairFault::raise(dynamic_cast<verbs::VerbsLink&>(*fails.a).connection().pairs().front());
  transfer(stays, source_of(bytes.data(), bytes.size()), copy.data(), true);
  CHECK(copy == bytes);
  std::size_t pushed = 0;
  REQUIRE(eventually([&] {
    pushed += fails.a->send().push(fingerprint_of(1), source_of(bytes.data(), bytes.size()), pushed % 1000, 15'000);
    // The other link's polls also reach the failing link.
    stays.a->send().progress();
    return !fails.a->send().status().is_ok();
  }));
  fails = {};
  transfer(stays, source_of(bytes.data(), bytes.size()), copy.data(), false);
  CHECK(stays.a->send().status().is_ok());
  CHECK(stays.b->recv().status().is_ok());
}
