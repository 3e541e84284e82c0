// The order and the errors of a stream, without communicators.
#include "streams/stream.h"

#include <pthread.h>

#include <array>
#include <functional>
#include <thread>
#include <vector>

#include "catch_compat.h"
#include "os/clock.h"
#include "unit/join/ranks.h"

using namespace tutti::internal;

namespace {

std::shared_ptr<Completion> queued(Stream* stream) {
  auto completion = std::make_shared<Completion>();
  static_cast<void>(stream->append(completion));
  return completion;
}

// A recursion through a chain of this length would not fit the stack on which these tests run.
constexpr std::size_t kLong = 100'000;
constexpr std::size_t kSmallStackBytes = std::size_t{256} << 10;
// An algorithm that searched the chain for each of its links would take hours.
constexpr std::int64_t kLongMs = 20'000;

void on_small_stack(std::function<void()> body) {
  const std::int64_t begin_ns = now_ns();
  pthread_attr_t attributes;
  pthread_t thread;
  ::pthread_attr_init(&attributes);
  REQUIRE(::pthread_attr_setstacksize(&attributes, kSmallStackBytes) == 0);
  const auto run = [](void* what) -> void* { return (*static_cast<std::function<void()>*>(what))(), nullptr; };
  // Nothing is checked here while the thread checks.
  const int error = ::pthread_create(&thread, &attributes, run, &body);
  ::pthread_attr_destroy(&attributes);
  if (error == 0) ::pthread_join(thread, nullptr);
  REQUIRE(error == 0);
  CHECK(now_ns() - begin_ns < kLongMs * 1'000'000);
}

// Two streams that alternately wait for each other's events, behind an operation that has not ended, with another
// operation behind every tenth wait.
struct Chain {
  explicit Chain(std::size_t waits) : slow(queued(&streams[0])) {
    for (std::size_t i = 0; i < waits; ++i) {
      streams[1 - i % 2].wait_for(streams[i % 2].mark());
      if (i % 10 == 0) operations.push_back(queued(&streams[1 - i % 2]));
      // A query in between finds no end.
      if (i % 1000 == 0 && !streams[i % 2].query().is_ok()) ++asked;
    }
  }
  void end_operations(std::size_t begin, std::size_t end, const Status& status) const {
    for (std::size_t i = begin; i < end; ++i) operations[i]->complete(status);
  }

  std::array<Stream, 2> streams;
  std::shared_ptr<Completion> slow;
  std::vector<std::shared_ptr<Completion>> operations;
  std::size_t asked = 0;
};

class Counts final : public Continuation {
 public:
  explicit Counts(int* count) : count_(count) {}
  void run(std::unique_ptr<Continuation> /*self*/) noexcept override { ++*count_; }

 private:
  int* const count_;
};

}  // namespace

TEST_CASE("an empty stream is complete") {
  Stream stream;
  CHECK(stream.last() == nullptr);
  CHECK(stream.query().is_ok());
  CHECK(stream.synchronize().is_ok());
}

TEST_CASE("each operation gets the one before it") {
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
  CHECK(completion.wait_until_ended().code() == Code::kTimeout);
  other.join();
  CHECK(completion.done());
  CHECK(completion.wait_for_ms(0));
  completion.wait_until_done();
  CHECK(completion.status().message() == "late");
}

TEST_CASE("an error is returned once, and later operations begin anew") {
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

TEST_CASE("an error does not detach operations queued during the wait for it") {
  Stream stream;
  const auto failing = queued(&stream);
  Status told;
  std::thread waiter([&] { told = stream.synchronize(); });
  // This test, the stream, its record and the waiter have a reference.
  const bool waits = tutti::internal::test::eventually([&] { return failing.use_count() == 4; });
  const auto later = queued(&stream);
  failing->complete(Status::timeout("late"));
  waiter.join();
  REQUIRE(waits);
  CHECK(told.code() == Code::kTimeout);
  CHECK(stream.query().code() == Code::kInProgress);
  CHECK(stream.last() == later);
}

TEST_CASE("the first error since the last call is returned, also if later operations succeed") {
  const bool by_query = GENERATE(true, false);
  const auto ask = [&](Stream& stream) { return by_query ? stream.query() : stream.synchronize(); };
  Stream stream;
  queued(&stream)->complete({});
  queued(&stream)->complete(Status::remote("first"));
  queued(&stream)->complete(Status::timeout("second"));
  queued(&stream)->complete({});
  CHECK(ask(stream).message() == "first");
  CHECK(ask(stream).is_ok());
  queued(&stream)->complete({});
  CHECK(ask(stream).is_ok());
  queued(&stream)->complete(Status::timeout("third"));
  CHECK(ask(stream).message() == "third");
}

TEST_CASE("an error after the queried operation is kept for the next call") {
  Stream stream;
  const auto first = queued(&stream);
  Status told;
  std::thread waiter([&] { told = stream.synchronize(); });
  // This test, the stream, its record and the waiter have a reference.
  const bool waits = tutti::internal::test::eventually([&] { return first.use_count() == 4; });
  const auto second = queued(&stream);
  // Both have ended before the waiter notices.
  second->complete(Status::timeout("second"));
  CHECK_FALSE(second->done());
  first->complete(Status::remote("first"));
  waiter.join();
  REQUIRE(waits);
  CHECK(told.message() == "first");
  CHECK(stream.query().message() == "second");
  CHECK(stream.query().is_ok());
}

TEST_CASE("a stream is complete when all its operations have ended, in any order") {
  Stream stream;
  const auto slow = queued(&stream);
  std::vector<std::shared_ptr<Completion>> early;
  for (int i = 0; i < 100'000; ++i) early.push_back(queued(&stream));
  for (std::size_t i = early.size(); i-- > 0;) early[i]->complete(i % 2 == 0 ? Status() : Status::aborted("early"));
  CHECK(early.back()->status().is_ok() == (early.size() % 2 == 1));
  CHECK_FALSE(early.back()->done());
  CHECK_FALSE(early.back()->wait_for_ms(1));
  CHECK(stream.query().code() == Code::kInProgress);
  std::thread ends([&] { slow->complete(Status::remote("slow")); });
  CHECK(stream.synchronize().message() == "slow");
  ends.join();
  CHECK(early.back()->done());
}

TEST_CASE("an event keeps the first error of the operations before it") {
  Stream stream;
  queued(&stream)->complete(Status::remote("told"));
  CHECK(stream.query().message() == "told");
  queued(&stream)->complete({});
  const auto clean = stream.mark();
  queued(&stream)->complete(Status::timeout("late"));
  const auto failed = stream.mark();
  queued(&stream)->complete(Status::remote("behind"));
  const auto all = stream.mark();
  CHECK(stream.query().message() == "late");
  const auto after = stream.mark();
  for (int times = 0; times < 2; ++times) {
    CHECK(clean.tell().is_ok());
    CHECK(failed.tell().message() == "late");
    CHECK(all.tell().message() == "late");
    CHECK(after.tell().is_ok());
  }
}

TEST_CASE("the error of an event is an error of the stream that waits for it") {
  Stream one;
  Stream other;
  const auto before = queued(&other);
  const auto waited_for = queued(&one);
  other.wait_for(one.mark());
  one.wait_for(one.mark());    // before the following item in every case
  other.wait_for(one.mark());  // the same once more
  const auto behind = queued(&other);
  before->complete({});
  behind->complete({});
  CHECK(other.query().code() == Code::kInProgress);
  waited_for->complete(Status::remote("of the other"));
  CHECK(one.query().message() == "of the other");
  CHECK(one.query().is_ok());
  CHECK(other.query().message() == "of the other");
  CHECK(other.query().is_ok());
  // Each waits for the other's latest, again and again.
  const auto first = queued(&one);
  for (int i = 0; i < 1000; ++i) {
    other.wait_for(one.mark());
    one.wait_for(other.mark());
  }
  first->complete(Status::timeout("once"));
  CHECK(one.query().message() == "once");
  CHECK(other.query().message() == "once");
  for (Stream* const stream : {&one, &other}) CHECK(stream->synchronize().is_ok());
}

TEST_CASE("only errors that were returned to the program count as reported") {
  const auto first = std::make_shared<FailureState>();
  const auto second = std::make_shared<FailureState>();
  const auto third = std::make_shared<FailureState>();
  Stream stream;
  for (const auto& failure : {first, second, third}) {
    const auto completion = std::make_shared<Completion>(failure);
    static_cast<void>(stream.append(completion));
    if (failure != first) completion->complete(Status::mismatch("differs"));
    if (failure == first) completion->complete({});
  }
  const auto event = stream.mark();
  CHECK_FALSE(second->told());
  CHECK(event.tell().code() == Code::kMismatch);
  CHECK(second->told());
  CHECK_FALSE(first->told());
  CHECK_FALSE(third->told());
}

TEST_CASE("a group keeps operations in the stream that came while it was open") {
  Stream stream;
  const auto before = queued(&stream);
  const auto meanwhile = queued(&stream);
  const auto group = std::make_shared<Completion>();
  stream.append_behind(before, group);
  before->complete({});
  group->complete({});
  CHECK(stream.query().code() == Code::kInProgress);
  meanwhile->complete({});
  CHECK(stream.query().is_ok());
  const auto next = std::make_shared<Completion>();
  stream.append_behind(stream.last(), next);
  CHECK(stream.last() == next);
  // The other part, of another communicator: neither waits for the other.
  const auto part = std::make_shared<Completion>();
  stream.append_behind(nullptr, part);
  part->complete(Status::remote("rank 3 died"));
  CHECK(stream.query().code() == Code::kInProgress);
  next->complete({});
  CHECK(stream.query().code() == Code::kRemoteError);
}

TEST_CASE("a long chain of waits ends in one go, whatever in it has ended before") {
  // The order in which the parts of the chain end; the last part that has not ended delays all.
  const bool slow_first = GENERATE(true, false);
  on_small_stack([&] {
    Chain chain(kLong);
    CHECK(chain.asked == kLong / 1000);
    const auto middle = chain.streams[0].mark();
    int behind = 0;
    Completion::then(*chain.streams[1].last(), std::make_unique<Counts>(&behind));
    const std::size_t half = chain.operations.size() / 2;
    if (slow_first) chain.slow->complete({});
    // Ends the queued operations of one communicator, like a revoke.
    chain.end_operations(half, chain.operations.size(), Status::aborted("revoked"));
    for (Stream& stream : chain.streams) CHECK(stream.query().code() == Code::kInProgress);
    CHECK_FALSE(middle.done());
    CHECK_FALSE(middle.end->wait_for_ms(1));
    CHECK(behind == 0);
    chain.end_operations(0, half, {});
    CHECK(middle.done() == slow_first);
    if (!slow_first) chain.slow->complete({});
    CHECK(behind == 1);
    CHECK(middle.done());
    CHECK(middle.end->wait_for_ms(0));
    CHECK(middle.tell().message() == "revoked");
    for (Stream& stream : chain.streams) CHECK(stream.synchronize().message() == "revoked");
    for (Stream& stream : chain.streams) CHECK(stream.synchronize().is_ok());
  });
}

TEST_CASE("a long chain of waits goes on when its streams are freed, and is freed when it is done") {
  on_small_stack([] {
    std::shared_ptr<Completion> slow;
    std::weak_ptr<Completion> middle;
    int behind = 0;
    {
      Chain chain(kLong);
      slow = std::move(chain.slow);
      middle = chain.operations[chain.operations.size() / 2];
      Completion::then(*chain.streams[1].last(), std::make_unique<Counts>(&behind));
      chain.end_operations(0, chain.operations.size(), {});
    }
    CHECK(behind == 0);
    CHECK_FALSE(middle.expired());
    slow->complete({});
    slow.reset();
    CHECK(behind == 1);
    CHECK(middle.expired());
  });
}

TEST_CASE("a long chain that nothing will end is freed with its first operation") {
  on_small_stack([] {
    auto slow = std::make_shared<Completion>();
    std::shared_ptr<Completion> last = slow;
    int behind = 0;
    for (std::size_t i = 0; i < kLong; ++i) {
      auto next = std::make_shared<Completion>();
      Completion::follow(next, last);
      last = Completion::both(last, next);
    }
    Completion::then(*last, std::make_unique<Counts>(&behind));
    const std::weak_ptr<Completion> end = last;
    last.reset();
    CHECK_FALSE(end.expired());
    slow.reset();
    CHECK(end.expired());
    CHECK(behind == 0);
  });
}

TEST_CASE("a long row of streams, each of which waits for the one before") {
  on_small_stack([] {
    std::vector<Stream> streams(kLong);
    const auto slow = queued(&streams[0]);
    for (std::size_t i = 1; i < streams.size(); ++i) streams[i].wait_for(streams[i - 1].mark());
    CHECK(streams.back().query().code() == Code::kInProgress);
    slow->complete(Status::timeout("late"));
    CHECK(streams.back().query().message() == "late");
    CHECK(streams[kLong / 2].synchronize().message() == "late");
    CHECK(streams.back().query().is_ok());
  });
}
