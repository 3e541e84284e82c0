// Streams of links that are made anew: what a job of ranks cannot show (tests/fault/reconnect_test.cc has the rest).
#include "transport/connections/reconnector.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <cstring>
#include <limits>
#include <thread>

#include "catch_compat.h"
#include "net/frame.h"
#include "net/socket.h"
#include "os/clock.h"
#include "socket_pairs.h"
#include "transport/connections/listeners.h"
#include "transport/tcp/kept_streams.h"
#include "transport/tcp/link.h"
#include "transport/tcp/sent_ring.h"

using namespace tutti::internal;
using namespace tutti::internal::transport;

namespace {

constexpr std::uint64_t kCommunicator = 5;

Secret secret_of(std::uint8_t byte) {
  Secret secret;
  secret.fill(byte);
  return secret;
}

// One of two ranks, with a thread that does what the control tree's does.
struct Side {
  explicit Side(int rank)
      : listeners(std::make_shared<Listeners>(secret_of(42), rank, Encryption::kOff)),
        reconnector(std::make_shared<Reconnector>(secret_of(42), rank, Encryption::kOff, listeners)) {
    Settings settings;
    settings.interface = "lo";
    REQUIRE(listeners->open(settings, false, true, "127.0.0.1", &info).is_ok());
    listeners->subscribe(kCommunicator, 64);
    REQUIRE(reconnector->begin().is_ok());
    auto event = EventFd::create();
    REQUIRE(event.is_ok());
    wakeup = std::move(*event);
  }
  Side(const Side&) = delete;
  Side& operator=(const Side&) = delete;
  ~Side() {
    stop();
    link.reset();
  }
  void start() {
    thread = std::thread([this] {
      while (!over) {
        net::PollSet set;
        set.clear(20);
        reconnector->prepare(&set);
        (void)set.wait();
        reconnector->process(set);
      }
    });
  }
  void stop() {
    over = true;
    if (thread.joinable()) thread.join();
  }

  std::shared_ptr<Listeners> listeners;
  std::shared_ptr<Reconnector> reconnector;
  PeerInfo info;
  FailureState failure;
  EventFd wakeup;
  std::unique_ptr<Link> link;
  std::atomic<bool> over{false};
  std::thread thread;
};

net::Address address_of(const Side& side) {
  auto address = net::parse_address(side.info.tcp_addresses.front());
  REQUIRE(address.is_ok());
  return *address;
}

// Rank 1 has dialled the link to rank 0.
tcp::Options options_of(Side* side, int peer, const net::Address& peer_address, std::int64_t limit_ms) {
  tcp::Options options;
  options.peer = peer;
  Reconnector::Peer other;
  other.communicator = kCommunicator;
  other.rank = other.job_rank = peer;
  other.dialled = peer == 0;
  other.addresses = {peer_address};
  other.name = "rank " + std::to_string(peer);
  other.silence_ms = 60'000;
  options.reconnect = tcp::Reconnect{side->reconnector, std::move(other), &side->failure, limit_ms, side->wakeup.fd()};
  return options;
}

void make_link(Side* side, int peer, std::vector<net::ByteStream> streams, const net::Address& peer_address,
               std::int64_t limit_ms) {
  auto link = tcp::make_link(std::move(streams), options_of(side, peer, peer_address, limit_ms));
  INFO(link.status().message());
  REQUIRE(link.is_ok());
  side->link = std::move(*link);
  side->start();
}

// Sends the bytes through `from` and compares what comes out of `to`.
std::string pass(Link& from, Link& to, std::size_t bytes) {
  std::vector<std::byte> sent(bytes);
  for (std::size_t i = 0; i < bytes; ++i) sent[i] = static_cast<std::byte>(i * 7 + i / 256);
  const Source source{sent.data()};
  const Deadline deadline = Deadline::after_ms(20'000);
  std::size_t pushed = 0;
  std::size_t received = 0;
  while (received < bytes) {
    if (deadline.passed()) return "too late";
    pushed += pushed < bytes ? from.send().push(Fingerprint{1, 2, 3}, source, pushed, bytes - pushed) : 0;
    const auto view = to.recv().peek(bytes - received);
    if (view.size == 0) {
      if (Status s = from.send().status(); !s.is_ok()) return s.message();
      if (Status s = to.recv().status(); !s.is_ok()) return s.message();
      continue;
    }
    if (std::memcmp(view.data, sent.data() + received, view.size) != 0) return "other bytes";
    received += view.size;
    if (!to.recv().consume(view.size)) return "revoked";
  }
  return {};
}

Status failure_of(Link& link) {
  const Deadline deadline = Deadline::after_ms(10'000);
  while (link.recv().status().is_ok() && !deadline.passed()) {
    (void)link.recv().peek(64);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return link.recv().status();
}

// A listener that accepts nothing, and whose queue is full: further requests get no answer, as behind a packet filter.
struct Silent {
  Silent() : listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in name{};
    name.sin_family = AF_INET;
    name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    REQUIRE(::bind(listener.get(), reinterpret_cast<sockaddr*>(&name), sizeof name) == 0);
    REQUIRE(::listen(listener.get(), 0) == 0);
    auto bound = net::local_address(listener.get());
    REQUIRE(bound.is_ok());
    address = *bound;
    for (int i = 0; i < 4; ++i) {
      auto fd = net::start_connect(address);
      if (fd.is_ok()) queued.push_back(std::move(*fd));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  UniqueFd listener;
  net::Address address;
  std::vector<UniqueFd> queued;
};

void reset(net::ByteStream fd) {
  const linger at_once{1, 0};
  REQUIRE(::setsockopt(fd.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once) == 0);
}

// Dials rank `to` as rank `from` does for its stream. Whether a connection was authenticated.
net::ByteStream dial_stream(const Side& side, int to, int from, const Secret& secret, std::int64_t longest_ms) {
  const net::Claim claim{net::Purpose::kStream, from, 0, 1, kCommunicator};
  net::Dial dial({address_of(side)}, secret, claim, to, {.patient = true});
  const Deadline deadline = Deadline::after_ms(longest_ms);
  while (!dial.done() && !deadline.passed()) {
    net::PollSet set;
    set.clear(10);
    dial.prepare(&set);
    (void)set.wait();
    dial.process(set);
  }
  return dial.done() ? dial.take() : net::ByteStream();
}

std::string message_of(std::uint64_t attempt, std::uint64_t received) {
  return net::Packer().number(attempt).number(received).bytes();
}

void send_all(int fd, const std::string& bytes) {
  REQUIRE(::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size()));
}

// Reads a message, and returns its number of an attempt.
std::uint64_t read_attempt(int fd) {
  std::string message(message_of(0, 0).size(), '\0');
  std::size_t size = 0;
  for (pollfd entry{fd, POLLIN, 0}; size < message.size();) {
    REQUIRE(::poll(&entry, 1, 5'000) == 1);
    const ssize_t got = ::recv(fd, message.data() + size, message.size() - size, 0);
    REQUIRE(got > 0);
    size += static_cast<std::size_t>(got);
  }
  return net::Unpacker(message).number<std::uint64_t>();
}

// Accepts the peer's next connection for its stream, and reads the number of the attempt. Invalid: none has come.
// REQUIRES: the side's thread does not run.
net::ByteStream accept_stream(Side* side, std::uint64_t* attempt, std::int64_t longest_ms) {
  const Deadline deadline = Deadline::after_ms(longest_ms);
  std::vector<net::Authenticated> arrived;
  while (arrived.empty() && !deadline.passed()) {
    (void)side->listeners->attend();
    arrived = side->listeners->take_streams();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  if (arrived.empty()) return {};
  net::ByteStream stream = std::move(arrived.front().stream);
  *attempt = read_attempt(stream.get());
  return stream;
}

bool is_closed_soon(int fd) {
  pollfd entry{fd, POLLIN, 0};
  std::array<char, 64> bytes{};
  return ::poll(&entry, 1, 5'000) == 1 && ::recv(fd, bytes.data(), bytes.size(), MSG_DONTWAIT) <= 0;
}

}  // namespace

TEST_CASE("a stream that broke for one side only is made anew, whichever side that is") {
  for (const int broken : {0, 1}) {
    auto [a, a_peer] = conformance::connected(conformance::Family::kIpv4, 1);
    auto [b, b_peer] = conformance::connected(conformance::Family::kIpv4, 1);
    Side zero(0);
    Side one(1);
    make_link(&zero, 1, std::move(a), address_of(one), 10'000);
    make_link(&one, 0, std::move(b), address_of(zero), 10'000);
    reset(std::move((broken == 0 ? a_peer : b_peer).front()));
    CHECK(pass(*zero.link, *one.link, 300'000) == "");
    CHECK(pass(*one.link, *zero.link, 300'000) == "");
  }
}

TEST_CASE("a stream fails if the peer's host cannot be reached within the limit, and not before") {
  constexpr std::int64_t kLimitMs = 700;
  for (const int rank : {0, 1}) {
    const Silent silent;
    auto [a, b] = conformance::connected(conformance::Family::kIpv4, 1);
    Side side(rank);
    make_link(&side, 1 - rank, std::move(a), silent.address, kLimitMs);
    const std::int64_t begin = now_ns();
    reset(std::move(b.front()));
    const Status status = failure_of(*side.link);
    const std::int64_t took_ms = (now_ns() - begin) / 1'000'000;
    CHECK(status.code() == Code::kRemoteError);
    INFO(status.message());
    CHECK(status.message().find("tcp connection lost while receiving: Connection reset by peer, and could not be made "
                                "anew within 700 ms") != std::string::npos);
    CHECK(took_ms >= kLimitMs);
    CHECK(took_ms < kLimitMs + 2'000);
  }
}

TEST_CASE("a stream fails soon if no process listens at the peer's address any more") {
  for (const int rank : {0, 1}) {
    auto gone = std::make_unique<Side>(1 - rank);
    const net::Address address = address_of(*gone);
    gone.reset();
    auto [a, b] = conformance::connected(conformance::Family::kIpv4, 1);
    Side side(rank);
    make_link(&side, 1 - rank, std::move(a), address, 60'000);
    const std::int64_t begin = now_ns();
    reset(std::move(b.front()));
    const Status status = failure_of(*side.link);
    INFO(status.message());
    CHECK(status.message().find("has ended: its address is no longer served by this job") != std::string::npos);
    CHECK((now_ns() - begin) / 1'000'000 < 3'000);
  }
}

TEST_CASE("data that arrived before a failure can still be read") {
  const Silent silent;
  auto [a, b] = conformance::connected(conformance::Family::kIpv4, 1);
  Side side(1);
  auto other = tcp::make_link(std::move(b), {});
  REQUIRE(other.is_ok());
  make_link(&side, 0, std::move(a), silent.address, 200);
  std::array<std::byte, 500> bytes{};
  bytes.fill(std::byte{9});
  REQUIRE((*other)->send().push(Fingerprint{1, 2, 3}, Source{bytes.data()}, 0, bytes.size()) == bytes.size());
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  other->reset();
  CHECK(failure_of(*side.link).code() == Code::kRemoteError);
  const auto view = side.link->recv().peek(bytes.size());
  REQUIRE(view.size == bytes.size());
  CHECK(std::memcmp(view.data, bytes.data(), bytes.size()) == 0);
}

TEST_CASE("neither other jobs nor late attempts take over a stream") {
  auto [a, b] = conformance::connected(conformance::Family::kIpv4, 1);
  Side zero(0);
  Side one(1);
  make_link(&zero, 1, std::move(a), address_of(one), 10'000);
  make_link(&one, 0, std::move(b), address_of(zero), 10'000);
  const int socket = zero.link->wait_fds()[0];
  CHECK_FALSE(dial_stream(zero, 0, 1, secret_of(1), 500).valid());
  // Attempt 0 is as late as can be.
  const net::ByteStream late = dial_stream(zero, 0, 1, secret_of(42), 10'000);
  REQUIRE(late.valid());
  send_all(late.get(), message_of(0, 0));
  CHECK(read_attempt(late.get()) == 1);  // the next one
  CHECK(is_closed_soon(late.get()));
  CHECK(pass(*zero.link, *one.link, 100'000) == "");
  CHECK(pass(*one.link, *zero.link, 100'000) == "");
  (void)zero.link->arm();
  CHECK(zero.link->wait_fds()[0] == socket);
}

TEST_CASE("the side that dials repeats an attempt if only the accepting side has lost its connection") {
  auto [a, b] = conformance::connected(conformance::Family::kIpv4, 1);
  Side zero(0);
  Side one(1);
  make_link(&one, 0, std::move(b), address_of(zero), 10'000);
  reset(std::move(a.front()));
  std::uint64_t attempt = 0;
  const net::ByteStream first = accept_stream(&zero, &attempt, 10'000);
  REQUIRE(first.valid());
  CHECK(attempt == 1);
  // Rank 0 asks for the stream as it does after its end of `first` has broken, and the answer is lost.
  const net::ByteStream ask = dial_stream(one, 1, 0, secret_of(42), 10'000);
  REQUIRE(ask.valid());
  send_all(ask.get(), message_of(1, 0));
  const net::ByteStream second = accept_stream(&zero, &attempt, 10'000);
  REQUIRE(second.valid());
  CHECK(attempt == 2);
}

TEST_CASE("only a peer that goes on closing connections for a stream has ended its link") {
  auto [a, b] = conformance::connected(conformance::Family::kIpv4, 1);
  Side zero(0);
  Side one(1);
  make_link(&one, 0, std::move(b), address_of(zero), 60'000);
  reset(std::move(a.front()));
  std::uint64_t attempt = 0;
  REQUIRE(accept_stream(&zero, &attempt, 10'000).valid());
  std::this_thread::sleep_for(std::chrono::milliseconds(1'500));  // it does not answer: it is stopped, or out of reach
  REQUIRE(accept_stream(&zero, &attempt, 10'000).valid());
  CHECK(attempt == 2);
  for (const Deadline deadline = Deadline::after_ms(800); !deadline.passed();) {
    net::ByteStream next = accept_stream(&zero, &attempt, 10'000);
    REQUIRE(next.valid());
    reset(std::move(next));
  }
  CHECK(one.link->recv().status().is_ok());
  const std::int64_t begin = now_ns();
  Status status;
  while (status.is_ok() && now_ns() - begin < 20'000'000'000) {
    (void)accept_stream(&zero, &attempt, 50);
    status = one.link->recv().status();
  }
  INFO(status.message());
  CHECK(status.message().find("could not be made anew: rank 0 has ended the link") != std::string::npos);
}

TEST_CASE("a stream is made anew although another member of the job has used its numbers") {
  auto [a, b] = conformance::connected(conformance::Family::kIpv4, 1);
  Side zero(0);
  Side one(1);
  make_link(&zero, 1, std::move(a), address_of(one), 10'000);
  make_link(&one, 0, std::move(b), address_of(zero), 10'000);
  const net::ByteStream last = dial_stream(zero, 0, 1, secret_of(42), 10'000);
  REQUIRE(last.valid());
  send_all(last.get(), message_of(std::numeric_limits<std::uint64_t>::max(), 0));
  CHECK(read_attempt(last.get()) == 1);
  CHECK(is_closed_soon(last.get()));
  constexpr std::uint64_t kMany = 1'000'000;
  net::ByteStream other = dial_stream(zero, 0, 1, secret_of(42), 10'000);
  REQUIRE(other.valid());
  send_all(other.get(), message_of(kMany, 0));
  CHECK(read_attempt(other.get()) == kMany);
  reset(std::move(other));
  CHECK(pass(*zero.link, *one.link, 100'000) == "");
  CHECK(pass(*one.link, *zero.link, 100'000) == "");
}

TEST_CASE("a connection for a link that is not made yet is dropped when its dialler ends it") {
  auto [a, b] = conformance::connected(conformance::Family::kIpv4, 1);
  Side zero(0);
  Side one(1);
  make_link(&zero, 1, std::move(a), address_of(one), 10'000);
  constexpr int kOther = 2;
  const net::ByteStream early = dial_stream(zero, 0, kOther, secret_of(42), 10'000);
  REQUIRE(early.valid());
  send_all(early.get(), message_of(1, 0) + "more");
  pollfd entry{early.get(), POLLIN, 0};
  CHECK(::poll(&entry, 1, 200) == 0);
  REQUIRE(::shutdown(early.get(), SHUT_WR) == 0);
  CHECK(is_closed_soon(early.get()));
}

TEST_CASE("a thread may sleep if a stream without room for copies is found broken") {
  const Silent silent;
  auto [a, b] = conformance::connected(conformance::Family::kIpv4, 1);
  Side side(1);
  make_link(&side, 0, std::move(a), silent.address, 60'000);
  side.stop();  // so that push() finds the break
  const std::vector<std::byte> bytes(2 * tcp::SentRing::kFirstBytes);
  const std::size_t some = tcp::SentRing::kFirstBytes - 1'000;
  const Source source{bytes.data()};
  REQUIRE(side.link->send().push(Fingerprint{1, 2, 3}, source, 0, some) == some);
  reset(std::move(b.front()));
  CHECK(side.link->send().push(Fingerprint{1, 2, 3}, source, some, bytes.size() - some) == 0);
  CHECK(side.link->send().status().is_ok());
  CHECK(side.link->arm());
}

TEST_CASE("a stream continues over a new socket, or says why not") {
  auto [a, b] = conformance::connected(conformance::Family::kIpv4, 1);
  Side side(1);
  tcp::KeptStreams streams(std::move(a), options_of(&side, 0, address_of(side), 10'000));
  CHECK(streams.stop(0) == 0);
  auto [c, d] = conformance::connected(conformance::Family::kIpv4, 1);
  const auto more = streams.resume(0, std::move(c.front()), 1);
  CHECK(more.status().message() == "protocol error: the peer has received more, or less, than was sent");
  const auto no_socket = streams.resume(0, net::ByteStream(), 0);
  CHECK(no_socket.status().code() == Code::kSystemError);
  CHECK(no_socket.status().message().find("fcntl of a stream") != std::string::npos);
  CHECK(streams.reconnects() == 0);
  CHECK(streams.resume(0, std::move(d.front()), 0).is_ok());
  CHECK(streams.reconnects() == 1);
}

TEST_CASE("a sleeping thread gets the new socket of a stream") {
  auto [a, b] = conformance::connected(conformance::Family::kIpv4, 1);
  Side zero(0);
  Side one(1);
  const int first = b.front().get();
  make_link(&zero, 1, std::move(a), address_of(one), 10'000);
  make_link(&one, 0, std::move(b), address_of(zero), 10'000);
  CHECK(one.link->arm());
  REQUIRE(::shutdown(first, SHUT_RDWR) == 0);
  pollfd entry{one.wakeup.fd(), POLLIN, 0};
  REQUIRE(::poll(&entry, 1, 10'000) == 1);
  CHECK(pass(*zero.link, *one.link, 1'000) == "");
  CHECK_FALSE(one.link->arm());
  CHECK(one.link->arm());
  int type = 0;
  socklen_t size = sizeof type;
  CHECK(::getsockopt(one.link->wait_fds()[0], SOL_SOCKET, SO_TYPE, &type, &size) == 0);
}

TEST_CASE("a ring of sent bytes keeps what is not released, up to its limit") {
  tcp::SentRing ring;
  std::vector<std::byte> all(3 * tcp::SentRing::kFirstBytes);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::byte>(i * 13 + i / 251);
  const auto check = [&] {
    for (std::uint64_t at = ring.begin(); at < ring.end();) {
      const auto piece = ring.piece(at);
      REQUIRE(!piece.empty());
      REQUIRE(std::memcmp(piece.data(), all.data() + at, piece.size()) == 0);
      at += piece.size();
    }
  };
  const std::size_t some = tcp::SentRing::kFirstBytes - 100;
  ring.append(all.data(), some);
  CHECK(ring.room() == 100);
  ring.release(some - 50);
  ring.append(all.data() + some, 1000);  // over the end of the memory
  check();
  ring.grow(2 * tcp::SentRing::kFirstBytes);
  REQUIRE(ring.room() >= 2 * tcp::SentRing::kFirstBytes - 1100);
  check();
  ring.append(all.data() + some + 1000, tcp::SentRing::kFirstBytes);
  check();
  ring.release(10);  // has been released
  CHECK(ring.begin() == some - 50);
  ring.grow(100 * tcp::SentRing::kMostBytes);
  CHECK(ring.room() + (ring.end() - ring.begin()) == tcp::SentRing::kMostBytes);
  check();
}
