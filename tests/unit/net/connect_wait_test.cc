// Events that end the wait for a connection, and events that do not.
#include "net/connect_wait.h"

#include <poll.h>
#include <sys/socket.h>

#include <string>

#include "catch_compat.h"
#include "os/unique_fd.h"

namespace tutti::internal::net {
namespace {

constexpr int kPeer = 3;

struct Pair {
  UniqueFd here;
  UniqueFd there;
};

Pair make_pair() {
  int ends[2] = {-1, -1};
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

Deadline far() {
  return Deadline::after_ms(60'000);
}

class Listener final : public StallWatch {
 public:
  Status stalled(std::int64_t, std::int64_t left_ms, const Awaited*) override {
    ++told;
    least_left_ms = left_ms;
    return wrong;
  }
  void held_up(std::span<const Held>, std::int64_t) override {}
  std::string missing() override { return {}; }
  Status wrong;
  int told = 0;
  std::int64_t least_left_ms = -1;
};

}  // namespace

TEST_CASE("arrived data ends a look in every case") {
  const Pair pair = make_pair();
  REQUIRE(::send(pair.there.get(), "x", 1, 0) == 1);
  FailureState failure;
  failure.set_departed({kPeer, 0});
  CHECK(ConnectWait(&failure, far()).poll(pair.here.get(), POLLIN, kPeer, "late").is_ok());
  CHECK(ConnectWait(&failure, Deadline::after_ms(0)).poll(pair.here.get(), POLLIN, kPeer, "late").is_ok());
}

TEST_CASE("a peer that has left, and has sent nothing, is not waited for") {
  const Pair pair = make_pair();
  FailureState failure;
  failure.set_departed({kPeer + 1, 0});
  const ConnectWait wait(&failure, far());
  CHECK(wait.poll(pair.here.get(), POLLIN, kPeer, "late").is_ok());
  failure.set_departed({kPeer, 0});
  const Status left = wait.poll(pair.here.get(), POLLIN, kPeer, "late");
  CHECK(left.code() == Code::kRemoteError);
  CHECK(left.message() == "rank 3 has left");
}

TEST_CASE("a failure comes before departure, and that before the deadline") {
  const Pair pair = make_pair();
  FailureState failure;
  const ConnectWait wait(&failure, Deadline::after_ms(0));
  const auto look = [&] { return wait.poll(pair.here.get(), POLLIN, kPeer, "too late"); };
  CHECK(look().code() == Code::kTimeout);
  CHECK(look().message() == "too late");
  failure.set_departed({kPeer, 0});
  CHECK(look().code() == Code::kRemoteError);
  failure.fail(Status::aborted("by somebody"));
  CHECK(look().code() == Code::kAborted);
}

TEST_CASE("the stall watch hears of each look that finds nothing") {
  const Pair pair = make_pair();
  Listener listener;
  const ConnectWait wait(nullptr, far(), &listener);
  CHECK(wait.poll(pair.here.get(), POLLIN, kPeer, "late").is_ok());
  CHECK(wait.poll(-1, 0, kPeer, "late").is_ok());
  CHECK(listener.told == 2);
  CHECK(listener.least_left_ms > 0);
  REQUIRE(::send(pair.there.get(), "x", 1, 0) == 1);
  CHECK(wait.poll(pair.here.get(), POLLIN, kPeer, "late").is_ok());
  CHECK(listener.told == 2);
}

TEST_CASE("a known refusal of the peer ends a wait before the deadline") {
  const Pair pair = make_pair();
  FailureState failure;
  Listener listener;
  const ConnectWait wait(&failure, far(), &listener);
  CHECK(wait.poll(pair.here.get(), POLLIN, kPeer, "late").is_ok());
  listener.wrong = Status::remote("rank 3 refused its operation 2");
  CHECK(wait.poll(pair.here.get(), POLLIN, kPeer, "late").message() == "rank 3 refused its operation 2");
  failure.fail(Status::aborted("aborted"));
  CHECK(wait.poll(pair.here.get(), POLLIN, kPeer, "late").code() == Code::kAborted);
}

TEST_CASE("looks at several peers end as those at one") {
  FailureState failure;
  const ConnectWait wait(&failure, Deadline::after_ms(0));
  const auto none = [] { return Status(); };
  const auto left = [] { return Status::remote("one of them has left"); };
  const auto late = [] { return Status::timeout("too late"); };
  CHECK(ConnectWait(&failure, far()).go_on(none, late).is_ok());
  CHECK(wait.go_on(none, late).code() == Code::kTimeout);
  CHECK(wait.go_on(left, late).code() == Code::kRemoteError);
  failure.fail(Status::aborted("by somebody"));
  CHECK(wait.go_on(left, late).code() == Code::kAborted);
}

}  // namespace tutti::internal::net
