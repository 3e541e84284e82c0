#include "net/auth.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <utility>

#include "catch_compat.h"
#include "net/frame.h"
#include "net/socket.h"
#include "os/clock.h"
#include "os/unique_fd.h"

using namespace tutti::internal;
using namespace tutti::internal::net;

namespace {

Secret secret_of(std::uint8_t byte) {
  Secret secret;
  secret.fill(byte);
  return secret;
}

struct Outcome {
  Status dialler;
  Status acceptor;
  bool both_done = false;
  Claim seen_by_acceptor;
};

struct Sockets {
  ByteStream dialler;
  ByteStream acceptor;
};

Sockets make_sockets() {
  int fds[2] = {-1, -1};
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) == 0);
  return {ByteStream(UniqueFd(fds[0])), ByteStream(UniqueFd(fds[1]))};
}

Outcome meet(const Secret& a, const Secret& b, const Claim& dialler, const Claim& acceptor, int expected) {
  Sockets sockets = make_sockets();
  Handshake left(Handshake::Role::kDialler, a, dialler, expected);
  Handshake right(Handshake::Role::kAcceptor, b, acceptor);
  Outcome outcome;
  for (int turn = 0; turn < 4; ++turn) {
    Result<bool> one = left.advance(&sockets.dialler);
    if (!one.is_ok()) sockets.dialler.reset();
    Result<bool> other = right.advance(&sockets.acceptor);
    outcome.dialler = one.status();
    outcome.acceptor = other.status();
    if (!one.is_ok() || !other.is_ok()) return outcome;
    outcome.both_done = *one && *other;
    if (outcome.both_done) break;
  }
  if (outcome.both_done) outcome.seen_by_acceptor = right.peer();
  return outcome;
}

}  // namespace

TEST_CASE("HMAC-SHA256 agrees with RFC 4231, test case 2") {
  Result<Mac> mac = hmac_sha256("Jefe", 4, "what do ya want for nothing?");
  REQUIRE(mac.is_ok());
  const Mac expected = {0x5b, 0xdc, 0xc1, 0x46, 0xbf, 0x60, 0x75, 0x4e, 0x6a, 0x04, 0x24, 0x26, 0x08, 0x95, 0x75, 0xc7,
                        0x5a, 0x00, 0x3f, 0x08, 0x9d, 0x27, 0x39, 0x83, 0x9d, 0xec, 0x58, 0xb9, 0x64, 0xec, 0x38, 0x43};
  CHECK(*mac == expected);
}

TEST_CASE("two that share the secret recognise each other's claims") {
  constexpr std::uint64_t kCommunicator = 0x8123'4567'89ab'cdef;
  const Claim claim{Purpose::kLink, 7, 2, 3, kCommunicator};
  const Outcome outcome = meet(secret_of(1), secret_of(1), claim, {Purpose::kLink, 4, 0, 1}, 4);
  REQUIRE(outcome.both_done);
  CHECK(outcome.seen_by_acceptor.rank == 7);
  CHECK(outcome.seen_by_acceptor.index == 2);
  CHECK(outcome.seen_by_acceptor.count == 3);
  CHECK(outcome.seen_by_acceptor.communicator == kCommunicator);
}

TEST_CASE("another secret, rank or purpose is refused") {
  const Claim dialler{Purpose::kLink, 7, 0, 1};
  const Claim acceptor{Purpose::kLink, 4, 0, 1};
  const Outcome secret = meet(secret_of(1), secret_of(2), dialler, acceptor, 4);
  CHECK(secret.dialler.message().find("secret") != std::string::npos);
  CHECK(meet(secret_of(1), secret_of(1), dialler, acceptor, 5).dialler.message().find("in place of") !=
        std::string::npos);
  CHECK_FALSE(meet(secret_of(1), secret_of(1), dialler, {Purpose::kTree, 4, 0, 1}, 4).acceptor.is_ok());
  CHECK_FALSE(meet(secret_of(1), secret_of(1), {Purpose::kLink, 7, 3, 3}, acceptor, 4).acceptor.is_ok());
}

TEST_CASE("an acceptor does not accept its own messages as an answer, nor garbage") {
  Sockets sockets = make_sockets();
  Handshake acceptor(Handshake::Role::kAcceptor, secret_of(1), {Purpose::kLink, 4, 0, 1});
  SECTION("reflection") {
    Handshake dialler(Handshake::Role::kDialler, secret_of(9), {Purpose::kLink, 7, 0, 1}, 4);
    REQUIRE(dialler.advance(&sockets.dialler).is_ok());
    REQUIRE(acceptor.advance(&sockets.acceptor).is_ok());
    char reply[256];
    const ssize_t got = ::recv(sockets.dialler.get(), reply, sizeof reply, 0);
    REQUIRE(got > 32);
    REQUIRE(::send(sockets.dialler.get(), reply + got - 32, 32, MSG_NOSIGNAL) == 32);
    Result<bool> done = acceptor.advance(&sockets.acceptor);
    CHECK(done.status().message().find("secret") != std::string::npos);
  }
  SECTION("a claim that was changed on its way") {
    constexpr std::ptrdiff_t kNonceBytes = 32;
    Handshake dialler(Handshake::Role::kDialler, secret_of(1), {Purpose::kLink, 7, 0, 1, 5}, 4);
    REQUIRE(dialler.advance(&sockets.dialler).is_ok());
    char hello[256];
    const ssize_t got = ::recv(sockets.acceptor.get(), hello, sizeof hello, 0);
    REQUIRE(got > kNonceBytes);
    hello[got - kNonceBytes - 8] ^= 1;  // the communicator's lowest byte
    Sockets changed = make_sockets();
    REQUIRE(::send(changed.dialler.get(), hello, static_cast<std::size_t>(got), MSG_NOSIGNAL) == got);
    REQUIRE(acceptor.advance(&changed.acceptor).is_ok());
    char reply[256];
    const ssize_t answered = ::recv(changed.dialler.get(), reply, sizeof reply, 0);
    REQUIRE(::send(sockets.acceptor.get(), reply, static_cast<std::size_t>(answered), MSG_NOSIGNAL) == answered);
    CHECK(dialler.advance(&sockets.dialler).status().message().find("secret") != std::string::npos);
  }
  SECTION("the first wrong byte is enough") {
    REQUIRE(::send(sockets.dialler.get(), "G", 1, MSG_NOSIGNAL) == 1);
    CHECK(acceptor.advance(&sockets.acceptor).status().code() == Code::kInvalidUsage);
  }
  SECTION("another version") {
    REQUIRE(::send(sockets.dialler.get(), "tutti\r\n\x63", 8, MSG_NOSIGNAL) == 8);
    CHECK(acceptor.advance(&sockets.acceptor).status().message().find("version") != std::string::npos);
  }
  SECTION("silence and departure") {
    Result<bool> waiting = acceptor.advance(&sockets.acceptor);
    REQUIRE(waiting.is_ok());
    CHECK_FALSE(*waiting);
    sockets.dialler.reset();
    CHECK(acceptor.advance(&sockets.acceptor).status().code() == Code::kRemoteError);
  }
}

namespace {

struct TcpSockets {
  ByteStream dialler;
  ByteStream acceptor;
};

// Over loopback: Unix sockets are never encrypted.
TcpSockets make_tcp_sockets() {
  UniqueFd listener = listen_tcp(0, 0).value();
  const Address address = parse_address("127.0.0.1:0")->with_port(local_address(listener.get())->port());
  UniqueFd dialler = start_connect(address).value();
  UniqueFd acceptor;
  for (const Deadline deadline = Deadline::after_ms(20'000); !acceptor.valid() && !deadline.passed();) {
    acceptor = std::move(accept_one(listener.get()).value());
  }
  REQUIRE(acceptor.valid());
  return {ByteStream(std::move(dialler)), ByteStream(std::move(acceptor))};
}

// Whether both have finished, before one of them failed.
bool finish(Handshake* left, ByteStream* dialler, Handshake* right, ByteStream* acceptor, Status* error) {
  bool left_done = false;
  bool right_done = false;
  for (const Deadline deadline = Deadline::after_ms(20'000); !deadline.passed();) {
    Result<bool> one = left_done ? Result<bool>(true) : left->advance(dialler);
    Result<bool> other = right_done ? Result<bool>(true) : right->advance(acceptor);
    *error = one.is_ok() ? other.status() : one.status();
    if (!error->is_ok()) return false;
    left_done = *one;
    right_done = *other;
    if (left_done && right_done) return true;
  }
  *error = Status::timeout("neither has finished");
  return false;
}

Claim claim_with(std::int32_t rank, Encryption encryption) {
  return {Purpose::kLink, rank, 0, 1, 0, encryption};
}

}  // namespace

TEST_CASE("a connection is encrypted if either side wants it") {
  const auto dialled = GENERATE(Encryption::kOff, Encryption::kOn, Encryption::kWan);
  const auto accepted = GENERATE(Encryption::kOff, Encryption::kOn, Encryption::kWan);
  const bool expected = dialled == Encryption::kOn || accepted == Encryption::kOn;  // loopback leaves no network
  TcpSockets sockets = make_tcp_sockets();
  Handshake left(Handshake::Role::kDialler, secret_of(1), claim_with(7, dialled), 4);
  Handshake right(Handshake::Role::kAcceptor, secret_of(1), claim_with(4, accepted));
  Status error;
  REQUIRE(finish(&left, &sockets.dialler, &right, &sockets.acceptor, &error));
  CHECK(sockets.dialler.encrypted() == expected);
  CHECK(sockets.acceptor.encrypted() == expected);
  CHECK(right.peer().rank == 7);
  REQUIRE(send_frame(&sockets.dialler, "hello", Deadline::after_ms(20'000)).is_ok());
  CHECK(recv_frame(&sockets.acceptor, 100, Deadline::after_ms(20'000)).value() == "hello");
  REQUIRE(send_frame(&sockets.acceptor, "answer", Deadline::after_ms(20'000)).is_ok());
  CHECK(recv_frame(&sockets.dialler, 100, Deadline::after_ms(20'000)).value() == "answer");
}

TEST_CASE("a Unix socket is not encrypted") {
  Sockets sockets = make_sockets();
  Handshake left(Handshake::Role::kDialler, secret_of(1), claim_with(7, Encryption::kOn), 4);
  Handshake right(Handshake::Role::kAcceptor, secret_of(1), claim_with(4, Encryption::kOn));
  Status error;
  REQUIRE(finish(&left, &sockets.dialler, &right, &sockets.acceptor, &error));
  CHECK_FALSE(sockets.dialler.encrypted());
}

namespace {

struct Relayed {
  bool both_done = false;
  std::array<std::size_t, 2> bytes{};  // from the dialler, from the acceptor
};

// Two that want encryption, and one between them who changes byte `wrong` of what one side sends.
Relayed relay(bool from_dialler, std::size_t wrong) {
  TcpSockets one = make_tcp_sockets();
  TcpSockets other = make_tcp_sockets();
  Handshake left(Handshake::Role::kDialler, secret_of(1), claim_with(7, Encryption::kOn), 4);
  Handshake right(Handshake::Role::kAcceptor, secret_of(1), claim_with(4, Encryption::kOn));
  Relayed result;
  const auto pass = [&](ByteStream& from, ByteStream& to, std::size_t* count, bool changes) {
    std::array<char, 4096> bytes{};
    const ssize_t got = from.recv(bytes.data(), bytes.size());
    if (got <= 0) return false;
    const auto size = static_cast<std::size_t>(got);
    if (changes && wrong >= *count && wrong < *count + size) bytes[wrong - *count] ^= 0x10;
    *count += size;
    REQUIRE(to.send(bytes.data(), size) == got);
    return true;
  };
  bool left_done = false;
  bool right_done = false;
  const auto advance = [](Handshake& side, ByteStream& stream, bool* done) {
    Result<bool> advanced = *done ? Result<bool>(true) : side.advance(&stream);
    *done = advanced.is_ok() && *advanced;
    return advanced.is_ok();
  };
  // After a changed length, both may wait.
  for (int idle = 0; idle < 1000 && !(left_done && right_done); ++idle) {
    if (!advance(left, one.dialler, &left_done) || !advance(right, other.acceptor, &right_done)) return result;
    if (pass(one.acceptor, other.dialler, result.bytes.data(), from_dialler)) idle = 0;
    if (pass(other.dialler, one.acceptor, &result.bytes[1], !from_dialler)) idle = 0;
  }
  result.both_done = left_done && right_done;
  return result;
}

}  // namespace

TEST_CASE("one who changes a byte between the two sides of an encrypted connection gets no connection") {
  const Relayed whole = relay(true, SIZE_MAX);
  REQUIRE(whole.both_done);
  for (const bool from_dialler : {true, false}) {
    const std::size_t bytes = whole.bytes[from_dialler ? 0 : 1];
    CHECK(bytes > 250);
    for (std::size_t wrong = 0; wrong < bytes; wrong += 3) {
      INFO((from_dialler ? "dialler's byte " : "acceptor's byte ") << wrong << " of " << bytes);
      CHECK_FALSE(relay(from_dialler, wrong).both_done);
    }
  }
}

TEST_CASE("another secret fails before the encryption begins") {
  TcpSockets sockets = make_tcp_sockets();
  Handshake left(Handshake::Role::kDialler, secret_of(1), claim_with(7, Encryption::kOn), 4);
  Handshake right(Handshake::Role::kAcceptor, secret_of(2), claim_with(4, Encryption::kOn));
  Status error;
  CHECK_FALSE(finish(&left, &sockets.dialler, &right, &sockets.acceptor, &error));
  CHECK(error.message().find("secret") != std::string::npos);
}
