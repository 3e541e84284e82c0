// Shared memory with a process that does not answer.
#include <chrono>
#include <thread>

#include "catch_compat.h"
#include "socket_pairs.h"
#include "transport/shm/link.h"

using namespace tutti::internal;
using namespace tutti::internal::transport;

namespace {

constexpr std::int64_t kLongMs = 60'000;

// Makes one side of a link whose other side has gone silent.
Status meet_nobody(bool dialled, const FailureState& failure, std::int64_t deadline_ms) {
  const WakeupFd wakeup_fd = std::move(WakeupFd::create().value());
  auto [ours, theirs] = conformance::connected(conformance::Family::kUnix, 1);
  const shm::LinkOptions options{7, true, &wakeup_fd, &failure};
  return shm::make_link(std::move(ours[0]), dialled, false, options, Deadline::after_ms(deadline_ms)).status();
}

}  // namespace

TEST_CASE("a failure ends the wait for a peer that sends nothing") {
  const bool dialled = GENERATE(true, false);
  FailureState failure;
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    failure.fail(Status::aborted("enough"));
  });
  const Deadline long_before = Deadline::after_ms(kLongMs / 2);
  const Status s = meet_nobody(dialled, failure, kLongMs);
  other.join();
  INFO(s.message());
  CHECK(s.code() == Code::kAborted);
  CHECK_FALSE(long_before.passed());
}

TEST_CASE("a peer that sends nothing is named at the deadline") {
  const bool dialled = GENERATE(true, false);
  const FailureState failure;
  const Status s = meet_nobody(dialled, failure, 100);
  INFO(s.message());
  CHECK(s.code() == Code::kTimeout);
  CHECK(s.message().find("rank 7") != std::string::npos);
}

TEST_CASE("a peer that hangs up before it has sent anything is a remote error") {
  const WakeupFd wakeup_fd = std::move(WakeupFd::create().value());
  auto [ours, theirs] = conformance::connected(conformance::Family::kUnix, 1);
  theirs.clear();
  auto link = shm::make_link(std::move(ours[0]), false, false, {7, true, &wakeup_fd}, Deadline::after_ms(kLongMs));
  CHECK(link.status().code() == Code::kRemoteError);
}
