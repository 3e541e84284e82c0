// The tcp transport: conformance over every kind of socket, and errors that only it can make.
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "catch_compat.h"
#include "conformance.h"
#include "os/clock.h"
#include "stream_check.h"
#include "tcp_pairs.h"
#include "transport/event_set.h"
#include "transport/tcp/frame.h"
#include "transport/tcp/link.h"

using namespace tutti::internal;
using namespace tutti::internal::transport;
using conformance::Family;
using conformance::link_over;
using conformance::tcp_pair;

namespace {

void check_family(Family family) {
  if (!conformance::available(family)) {
    WARN("no loopback address for " << conformance::name_of(family) << " on this machine");
    return;
  }
  const int streams = GENERATE(1, 3);
  const std::string name = "tcp/" + conformance::name_of(family) + "/" + std::to_string(streams);
  conformance::check({name, [=](std::uint64_t) { return tcp_pair(family, streams); }, true});
}

// Looks at the lane until it has failed or ten seconds have passed.
Status failure_of(RecvLane& lane) {
  const Deadline deadline = Deadline::after_ms(10'000);
  while (lane.status().is_ok() && !deadline.passed()) {
    if (lane.peek(64).size != 0) break;
  }
  return lane.status();
}

}  // namespace

TEST_CASE("tcp over IPv4 is a transport") {
  check_family(Family::kIpv4);
}
TEST_CASE("tcp over IPv6 is a transport") {
  check_family(Family::kIpv6);
}
TEST_CASE("tcp over Unix sockets is a transport") {
  check_family(Family::kUnix);
}

TEST_CASE("encrypted tcp is a transport") {
  const int streams = GENERATE(1, 3);
  conformance::check({"tcp/encrypted/" + std::to_string(streams),
                      [=](std::uint64_t) { return conformance::encrypted_tcp_pair(Family::kIpv4, streams); }, true});
}

TEST_CASE("encrypted tcp over the smallest buffers that the kernel gives is a transport") {
  const int streams = GENERATE(1, 2);
  conformance::check({"tcp/encrypted/least buffers/" + std::to_string(streams),
                      [=](std::uint64_t) { return conformance::encrypted_tcp_pair(Family::kUnix, streams, 1); }, true});
}

TEST_CASE("tcp over the smallest buffers that the kernel gives is a transport") {
  const int streams = GENERATE(1, 2, 16);
  conformance::check({"tcp/least buffers/" + std::to_string(streams),
                      [=](std::uint64_t) { return tcp_pair(Family::kUnix, streams, 1); }, true});
}

TEST_CASE("a tcp link has 1 to 16 streams") {
  CHECK(tcp::make_link({}, {}).status().code() == Code::kInvalidArgument);
  CHECK(tcp::make_link(conformance::connected(Family::kUnix, 17).first, {}).status().code() == Code::kInvalidArgument);
  CHECK(tcp::make_link(conformance::connected(Family::kUnix, 16).first, {}).is_ok());
}

TEST_CASE("a descriptor that is not a socket makes no link") {
  std::array<int, 2> ends{};
  REQUIRE(::pipe(ends.data()) == 0);
  std::vector<net::ByteStream> streams;
  streams.emplace_back(UniqueFd(ends[0]));
  const UniqueFd other(ends[1]);
  CHECK(tcp::make_link(std::move(streams), {}).status().code() == Code::kSystemError);
}

TEST_CASE("options reach the socket") {
  auto [a, b] = conformance::connected(Family::kIpv4, 1);
  const int fd = a.front().get();
  tcp::Options options;
  options.socket_buffer_bytes = 32 * 1024;
  auto link = tcp::make_link(std::move(a), options);
  REQUIRE(link.is_ok());
  int bytes = 0;
  socklen_t size = sizeof bytes;
  REQUIRE(::getsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, &size) == 0);
  CHECK(bytes == 2 * options.socket_buffer_bytes);  // socket(7): the kernel doubles it
}

TEST_CASE("garbage is an error, not data") {
  const auto garbage = GENERATE(as<std::string>{}, "GET / HTTP/1.1\r\nHost: x\r\n\r\n", std::string(64, '\0'));
  auto [a, b] = conformance::connected(Family::kIpv4, 1);
  const auto link = link_over(std::move(a), 7);
  REQUIRE(::send(b.front().get(), garbage.data(), garbage.size(), 0) == static_cast<ssize_t>(garbage.size()));
  const Status status = failure_of(link->recv());
  CHECK(status.code() == Code::kInternalError);
  CHECK(status.message().find("rank 7") != std::string::npos);
  CHECK(link->recv().peek(8).size == 0);
}

TEST_CASE("a frame longer than any sender makes is an error") {
  auto [a, b] = conformance::connected(Family::kIpv4, 1);
  const auto link = link_over(std::move(a), 7);
  const tcp::FrameHeader header = tcp::encode(tcp::kFrameBytes + 1, {});
  REQUIRE(::send(b.front().get(), &header, sizeof header, 0) == sizeof header);
  CHECK(failure_of(link->recv()).code() == Code::kInternalError);
}

TEST_CASE("a header in single bytes is put together") {
  auto [a, b] = conformance::connected(Family::kIpv4, 1);
  const auto link = link_over(std::move(a), 7);
  const Fingerprint fingerprint{1, 2, 3};
  std::array<char, tcp::kHeaderBytes + 3> packet{};
  const tcp::FrameHeader header = tcp::encode(3, fingerprint);
  std::memcpy(packet.data(), &header, sizeof header);
  std::memcpy(packet.data() + sizeof header, "abc", 3);
  const Deadline deadline = Deadline::after_ms(10'000);
  RecvLane::View view;
  std::size_t sent = 0;
  while (view.size < 3 && !deadline.passed()) {
    if (sent < packet.size()) {
      CHECK(view.size == (sent > tcp::kHeaderBytes ? sent - tcp::kHeaderBytes : 0));
      REQUIRE(::send(b.front().get(), packet.data() + sent, 1, 0) == 1);
      ++sent;
    }
    view = link->recv().peek(3);
  }
  REQUIRE(view.size == 3);
  CHECK(view.fingerprint == fingerprint);
  CHECK(std::memcmp(view.data, "abc", 3) == 0);
}

TEST_CASE("a reset connection names the peer and the cause") {
  auto [a, b] = conformance::connected(Family::kIpv4, 1);
  const auto link = link_over(std::move(a), 7);
  const linger at_once{1, 0};
  REQUIRE(::setsockopt(b.front().get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once) == 0);
  b.clear();
  const Status status = failure_of(link->recv());
  CHECK(status.code() == Code::kRemoteError);
  CHECK(status.message().find("rank 7") != std::string::npos);
  CHECK(status.message().find("reset") != std::string::npos);
}

TEST_CASE("the end of a connection wakes a sleeping thread, and the error names the peer") {
  auto [a, b] = conformance::connected(Family::kIpv4, 1);
  const auto link = link_over(std::move(a), 7);
  auto set = EventSet::create();
  REQUIRE(set.is_ok());
  REQUIRE(set->watch(*link));
  (void)set->take(0);
  b.clear();
  CHECK(set->take(10'000));
  const Status status = failure_of(link->recv());
  CHECK(status.code() == Code::kRemoteError);
  CHECK(status.message().find("rank 7: tcp connection closed") != std::string::npos);
}

TEST_CASE("several streams share a long message") {
  auto [a, b] = conformance::connected(Family::kIpv4, 2);
  const auto link = link_over(std::move(a), 7);
  const std::vector<std::byte> bytes(2 * tcp::kFrameBytes, std::byte{9});
  const Source source{bytes.data(), bytes.size(), 0, 0};
  link->send().push({}, source, 0, bytes.size());
  const Deadline deadline = Deadline::after_ms(10'000);
  for (const net::ByteStream& stream : b) {
    std::array<std::byte, tcp::kHeaderBytes> header;
    ssize_t got = 0;
    while (got <= 0 && !deadline.passed()) got = ::recv(stream.get(), header.data(), header.size(), MSG_DONTWAIT);
    CHECK(got == static_cast<ssize_t>(tcp::kHeaderBytes));
  }
}

TEST_CASE("a small message is taken whole and copied") {
  const auto pair = tcp_pair(Family::kIpv4, 1);
  std::vector<std::byte> bytes(64, std::byte{1});
  const Source source{bytes.data(), bytes.size(), 0, 0};
  CHECK(pair.a->send().push(conformance::fingerprint_of(1), source, 0, 64) == 64);
  CHECK(pair.a->send().completed() == 64);
  std::fill(bytes.begin(), bytes.end(), std::byte{2});
  const Deadline deadline = Deadline::after_ms(10'000);
  RecvLane::View view;
  while (view.size < 64 && !deadline.passed()) view = pair.b->recv().peek(64);
  REQUIRE(view.size == 64);
  CHECK(view.data[0] == std::byte{1});
}
