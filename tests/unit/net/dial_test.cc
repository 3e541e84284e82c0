#include "net/dial.h"

#include <sys/socket.h>

#include <functional>

#include "catch_compat.h"
#include "net/acceptor.h"
#include "os/clock.h"

using namespace tutti::internal;
using namespace tutti::internal::net;

namespace {

Secret some_secret() {
  Secret secret;
  secret.fill(3);
  return secret;
}

const Claim kMine{Purpose::kRoot, 5, 0, 1};
const Claim kTheirs{Purpose::kRoot, -1, 0, 1};

struct Listener {
  UniqueFd fd = listen_tcp(0, 0).value();
  Address address = parse_address("127.0.0.1:0")->with_port(local_address(fd.get())->port());
};

// Both sides act until `done`.
void turn(Dial* dial, const std::function<void()>& other, const std::function<bool()>& done) {
  const Deadline deadline = Deadline::after_ms(20'000);
  PollSet set;
  while (!done() && !deadline.passed()) {
    set.clear(2);
    dial->prepare(&set);
    REQUIRE(set.wait().is_ok());
    dial->process(set);
    other();
  }
  REQUIRE(done());
}

// Answers one connection, and reads no proof.
class Half {
 public:
  void accept(int listener) {
    if (!stream_.valid()) {
      Result<UniqueFd> accepted = accept_one(listener);
      REQUIRE(accepted.is_ok());
      stream_ = ByteStream(std::move(*accepted));
    }
    if (readable() && !replied_) {
      REQUIRE(handshake_.advance(&stream_).is_ok());
      replied_ = true;
    }
  }
  // The dialler has sent its proof.
  [[nodiscard]] bool proof_came() const { return replied_ && readable(); }
  void welcome() {
    Result<bool> done = handshake_.advance(&stream_);
    REQUIRE(done.is_ok());
    REQUIRE(*done);
  }
  void close() { stream_.reset(); }

 private:
  // A message is sent at once, and so arrives at once.
  [[nodiscard]] bool readable() const {
    char byte = 0;
    return stream_.valid() && ::recv(stream_.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 1;
  }
  ByteStream stream_;
  Handshake handshake_{Handshake::Role::kAcceptor, some_secret(), kTheirs};
  bool replied_ = false;
};

}  // namespace

TEST_CASE("a peer that closes a connection before it has read the proof is dialled again") {
  const Listener listener;
  Dial dial({listener.address}, some_secret(), kMine, -1);
  Half first;
  turn(
      &dial, [&] { first.accept(listener.fd.get()); }, [&] { return first.proof_came(); });
  CHECK_FALSE(dial.done());
  first.close();
  Half second;
  turn(
      &dial, [&] { second.accept(listener.fd.get()); }, [&] { return second.proof_came(); });
  CHECK_FALSE(dial.done());
  // The listener is slow: it has not refused.
  CHECK(dial.all_failed());
  CHECK_FALSE(dial.refused_for(0));
  CHECK_FALSE(dial.gone_for(0));
  second.welcome();
  turn(
      &dial, [] {}, [&] { return dial.done(); });
}

TEST_CASE("once one connection is authenticated, only that one is waited for") {
  const Listener silent;
  const Listener listener;
  Dial dial({silent.address, listener.address}, some_secret(), kMine, -1);
  Half other;
  Half half;
  UniqueFd swallowed;
  const auto accept = [&] {
    if (!swallowed.valid()) swallowed = accept_one(silent.fd.get()).value();
    half.accept(listener.fd.get());
  };
  turn(&dial, accept, [&] { return half.proof_came(); });
  // First the hello, then the end.
  char hello[256];
  REQUIRE(::recv(swallowed.get(), hello, sizeof hello, MSG_DONTWAIT) > 0);
  CHECK(::recv(swallowed.get(), hello, sizeof hello, MSG_DONTWAIT) == 0);
  const std::int64_t begin_ns = now_ns();
  turn(
      &dial, [&] { REQUIRE_FALSE(accept_one(silent.fd.get())->valid()); },
      [&] { return now_ns() - begin_ns > (Dial::kHandshakeMs + 500) * 1'000'000; });
  CHECK_FALSE(dial.done());
  CHECK_FALSE(dial.all_failed());
  half.welcome();
  turn(
      &dial, [] {}, [&] { return dial.done(); });
}

namespace {

// A port of this host that is taken, but at which no process listens.
struct Refusing {
  UniqueFd fd = UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  Address address = *parse_address("127.0.0.1:0");
  Refusing() {
    REQUIRE(::bind(fd.get(), address.get(), address.length()) == 0);
    address = local_address(fd.get()).value();
  }
};

// connect(2) to it fails at once: a broadcast address.
Address unreachable() {
  return *parse_address("255.255.255.255:9");
}

// The kernel of this host drops the dialler's packets: the queue of connections is full.
struct SilentListener {
  SilentListener() {
    REQUIRE(::listen(listener.fd.get(), 0) == 0);
    first = start_connect(listener.address).value();
    while (connect_result(first.get()).code() == Code::kInProgress) {
    }
  }
  Listener listener;
  UniqueFd first;
};

void run_for(Dial* dial, std::int64_t ms) {
  const std::int64_t begin_ns = now_ns();
  turn(
      dial, [] {}, [&] { return now_ns() - begin_ns >= ms * 1'000'000; });
}

}  // namespace

TEST_CASE("a peer whose host refuses at the address that leads to it is gone, whatever its other addresses are") {
  const bool patient = GENERATE(false, true);
  const int which = GENERATE(1, 2, 3);
  const SilentListener silent;
  const Refusing refusing;
  std::vector<Address> targets = {refusing.address};
  if ((which & 1) != 0) targets.push_back(silent.listener.address);
  if ((which & 2) != 0) targets.push_back(unreachable());
  Dial dial(targets, some_secret(), kMine, -1, {.patient = patient, .first_is_sure = true});
  CHECK_FALSE(dial.gone_for(0));
  run_for(&dial, 300);
  CHECK(dial.gone_for(100));
  CHECK_FALSE(dial.gone_for(1000));
}

TEST_CASE("a refusal at an address that another host may have does not mean that the peer is gone") {
  const bool sure = GENERATE(false, true);
  const Refusing refusing;
  std::vector<Address> targets = {refusing.address, unreachable()};
  if (sure) std::swap(targets[0], targets[1]);
  Dial dial(targets, some_secret(), kMine, -1, {.first_is_sure = sure});
  run_for(&dial, 200);
  CHECK(dial.any_refused());
  CHECK_FALSE(dial.gone_for(0));
}

TEST_CASE("a peer whose host refuses at one address is not gone while a process answers at another") {
  const Listener slow;  // accepts, and does not answer
  const Refusing refusing;
  Dial dial({refusing.address, slow.address}, some_secret(), kMine, -1, {.first_is_sure = true});
  run_for(&dial, 200);
  CHECK_FALSE(dial.gone_for(0));
}

TEST_CASE("a peer whose host refuses at one address is not gone if a packet to another one was lost") {
  const SilentListener listener;
  const Refusing refusing;
  Dial dial({refusing.address, listener.listener.address}, some_secret(), kMine, -1, {.first_is_sure = true});
  turn(
      &dial, [] {}, [&] { return dial.trouble().find("no answer") != std::string::npos; });
  // Now it would answer. The kernel repeats the lost packet a second later.
  const UniqueFd accepted = accept_one(listener.listener.fd.get()).value();
  REQUIRE(accepted.valid());
  run_for(&dial, 500);
  CHECK(dial.any_refused());
  CHECK_FALSE(dial.gone_for(0));
}

TEST_CASE("an address leads to the peer's host unless this host has the same one") {
  const std::vector<Address> peer = {*parse_address("172.17.0.1:5"), *parse_address("10.0.0.2:5")};
  CHECK(leads_to_peer(peer, {"10.0.0.1:7"}));
  CHECK(leads_to_peer(peer, {"10.0.0.2:7"}));  // only the first one is asked about
  CHECK_FALSE(leads_to_peer(peer, {"10.0.0.1:7", "172.17.0.1:7"}));
  CHECK_FALSE(leads_to_peer({*parse_address("127.0.0.1:5")}, {"10.0.0.1:7"}));
}
