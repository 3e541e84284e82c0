// The order and the errors of a stream, without any communicator.
#include "communicator/stream.h"

#include <thread>

#include "catch_compat.h"
#include "unit/bootstrap/ranks.h"

using namespace tutti::internal;

namespace {

std::shared_ptr<Completion> queued(Stream* stream) {
  auto completion = std::make_shared<Completion>();
  static_cast<void>(stream->append(completion));
  return completion;
}

}  // namespace

TEST_CASE("an empty stream is complete") {
  Stream stream;
  CHECK(stream.last() == nullptr);
  CHECK(stream.query().is_ok());
  CHECK(stream.synchronize().is_ok());
}

TEST_CASE("each operation is told of the one before it") {
  Stream stream;
  const auto first = std::make_shared<Completion>();
  const auto second = std::make_shared<Completion>();
  CHECK(stream.append(first) == nullptr);
  CHECK(stream.append(second) == first);
  CHECK(stream.last() == second);
}

TEST_CASE("a stream is in progress until its last operation is complete") {
  Stream stream;
  const auto first = queued(&stream);
  const auto second = queued(&stream);
  first->complete({});
  CHECK(stream.query().code() == Code::kInProgress);
  second->complete({});
  CHECK(stream.query().is_ok());
  CHECK(stream.synchronize().is_ok());
}

TEST_CASE("a completion is waited for, with its status") {
  Completion completion;
  CHECK_FALSE(completion.done());
  CHECK_FALSE(completion.wait_for_ms(1));
  CHECK(completion.status().is_ok());
  std::thread other([&] { completion.complete(Status::timeout("late")); });
  CHECK(completion.wait().code() == Code::kTimeout);
  other.join();
  CHECK(completion.done());
  CHECK(completion.wait_for_ms(0));
  CHECK(completion.wait().message() == "late");
}

TEST_CASE("an error is told once, and what is queued afterwards begins anew") {
  const bool by_query = GENERATE(true, false);
  Stream stream;
  queued(&stream)->complete(Status::remote("rank 3 died"));
  const Status told = by_query ? stream.query() : stream.synchronize();
  CHECK(told.code() == Code::kRemoteError);
  CHECK(told.message() == "rank 3 died");
  CHECK(stream.query().is_ok());
  CHECK(stream.synchronize().is_ok());
  CHECK(stream.append(std::make_shared<Completion>()) == nullptr);
}

TEST_CASE("an error does not unhook what was queued while it was waited for") {
  Stream stream;
  const auto failing = queued(&stream);
  Status told;
  std::thread waiter([&] { told = stream.synchronize(); });
  // This test, the stream and the waiter hold it.
  const bool waits = tutti::internal::test::eventually([&] { return failing.use_count() == 3; });
  const auto later = queued(&stream);
  failing->complete(Status::timeout("late"));
  waiter.join();
  REQUIRE(waits);
  CHECK(told.code() == Code::kTimeout);
  CHECK(stream.query().code() == Code::kInProgress);
  CHECK(stream.last() == later);
}

TEST_CASE("a group keeps in the stream what has come while it was begun") {
  Stream stream;
  const auto before = queued(&stream);
  const auto meanwhile = queued(&stream);
  const auto group = std::make_shared<Completion>();
  stream.append_behind(before, group);
  group->complete({});
  CHECK(stream.query().code() == Code::kInProgress);
  meanwhile->complete({});
  CHECK(stream.query().is_ok());
  const auto next = std::make_shared<Completion>();
  stream.append_behind(stream.last(), next);
  CHECK(stream.last() == next);
  next->complete({});
}
