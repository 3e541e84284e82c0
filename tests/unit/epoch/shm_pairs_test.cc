// Which of several threads connects two ranks, and when they connect again.
#include <sys/socket.h>

#include <array>
#include <thread>
#include <utility>

#include "catch_compat.h"
#include "epoch/membership.h"
#include "transport/shm/pairs.h"

namespace tutti::internal {
namespace {

constexpr int kPeer = 3;
using State = SharedConnections::State;

struct Owner {
  Membership membership;
  transport::WakeupFd wakeup_fd = std::move(transport::WakeupFd::create().value());
  FailureState failure;
  [[nodiscard]] LinkOwner get() const { return {membership, wakeup_fd, failure}; }
};

// A connection; *other is the peer's end.
PeerConnection connection(ConnectionKind kind, UniqueFd* other) {
  std::array<int, 2> ends{};
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()) == 0);
  *other = UniqueFd(ends[1]);
  PeerConnection channel;
  channel.kind = kind;
  channel.peer = 1;
  channel.streams.emplace_back(UniqueFd(ends[0]));
  return channel;
}

TEST_CASE("one thread makes a connection, and another if that gives it up") {
  ShmPairs pairs;
  CHECK(pairs.state(kPeer) == State::kNone);
  REQUIRE(pairs.claim(kPeer));
  CHECK_FALSE(pairs.claim(kPeer));
  CHECK(pairs.state(kPeer) == State::kBeingMade);
  CHECK(pairs.claim(kPeer + 1));
  std::thread other([&] { pairs.give_up(kPeer); });
  while (pairs.state(kPeer) != State::kNone) pairs.await_change(1000);
  other.join();
  CHECK(pairs.claim(kPeer));
}

TEST_CASE("a connection that has been lost is made again, for the links to come") {
  ShmPairs pairs;
  const Owner owner;
  UniqueFd peer;
  REQUIRE(pairs.claim(kPeer));
  REQUIRE(pairs.add(kPeer, connection(ConnectionKind::kUnix, &peer), owner.get()).is_ok());
  pairs.give_up(kPeer);
  CHECK(pairs.state(kPeer) == State::kMade);
  CHECK_FALSE(pairs.claim(kPeer));
  peer.reset();
  CHECK(pairs.state(kPeer) == State::kNone);
  CHECK(pairs.claim(kPeer));
  auto begun = pairs.begin_link(kPeer, 5, 1, owner.get());
  REQUIRE(begun.is_ok());
  CHECK(begun.value() == nullptr);
}

TEST_CASE("a connection over the network means that the ranks share no memory") {
  ShmPairs pairs;
  const Owner owner;
  UniqueFd peer;
  REQUIRE(pairs.claim(kPeer));
  REQUIRE(pairs.add(kPeer, connection(ConnectionKind::kTcp, &peer), owner.get()).is_ok());
  CHECK(pairs.state(kPeer) == State::kOutOfReach);
  CHECK_FALSE(pairs.claim(kPeer));
}

}  // namespace
}  // namespace tutti::internal
