// The rendezvous of ranks (device/rendezvous.h), without streams: its members, when all are there, and how it ends.
#include "device/rendezvous.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "catch_compat.h"
#include "device_rig.h"

// The stand-in for the driver takes this for code for its devices.
extern "C" const unsigned char tutti_device_image[1] = {0};

namespace tutti::internal {
namespace {

using State = DeviceSubmission::State;

const memory::CudaDevice& device() {
  auto found = memory::CudaDevice::get(0);
  if (!found.is_ok()) throw std::runtime_error(found.status().message());
  return **found;
}

const DirectKernels& kernels() {
  auto found = DirectKernels::of(device());
  if (!found.is_ok() || *found == nullptr) throw std::runtime_error("no code for the device");
  return **found;
}

Secret new_secret() {
  static std::uint8_t last = 0;
  Secret secret{};
  secret[0] = ++last;
  return secret;
}

// The ranks of a communicator on one machine: `here` in this process, then `elsewhere` in other ones.
std::vector<PeerInfo> peers(int here, int elsewhere = 0) {
  std::vector<PeerInfo> all(static_cast<std::size_t>(here + elsewhere));
  for (int r = 0; r < here + elsewhere; ++r) {
    PeerInfo& peer = all[static_cast<std::size_t>(r)];
    peer.rank = r;
    peer.boot[0] = 1;
    peer.process[0] = static_cast<std::uint8_t>(r < here ? 0 : r);
  }
  return all;
}

struct Ranks {
  explicit Ranks(int n) : Ranks(n, new_secret()) {}
  Ranks(int n, const Secret& secret) {
    for (int r = 0; r < n; ++r) all.push_back(DeviceRendezvous::join(secret, peers(n), r, device()));
  }
  DeviceRendezvous& operator[](std::size_t rank) { return *all[rank]; }
  std::vector<std::shared_ptr<DeviceRendezvous>> all;
};

std::unique_ptr<DeviceSubmission> batch() {
  return std::make_unique<DeviceSubmission>(nullptr, std::make_shared<Batch>(), std::span<void* const>());
}

std::int64_t ms_of(const std::function<void()>& body) {
  const auto begin = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - begin).count();
}

// Rank `rank` brings a batch in its own thread, like a rank that may bring more.
void bring_elsewhere(DeviceRendezvous& rendezvous, int rank, DeviceSubmission* submission) {
  std::thread([&] { CHECK(rendezvous.bring(rank, submission).all.empty()); }).join();
}

}  // namespace

TEST_CASE("rendezvous: the last rank gets the batches of all in the order of ranks, and the others wait for it") {
  test::need_device();
  Ranks ranks(3);
  const FailureState failure;
  CHECK(ranks.all[0] == ranks.all[2]);
  CHECK(ranks[0].is_one_device(failure));
  auto first = batch();
  auto second = batch();
  auto third = batch();
  bring_elsewhere(ranks[2], 2, third.get());
  bring_elsewhere(ranks[0], 0, first.get());
  CHECK(first->state == State::kUnderWay);
  std::atomic<bool> finished{false};
  std::thread waits([&] {
    ranks[0].wait(first.get(), failure);
    CHECK(finished);
  });
  const DeviceRendezvous::Launch launch = ranks[1].bring(1, second.get());
  CHECK(launch.all == std::vector<DeviceSubmission*>{first.get(), second.get(), third.get()});
  CHECK(launch.one_device);
  // Longer than a rank waits for a late one.
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  finished = true;
  ranks[1].finish();
  waits.join();
  for (const auto* one : {first.get(), second.get(), third.get()}) CHECK(one->state == State::kDone);
}

TEST_CASE("rendezvous: ranks launch alone if one is late, and the late one does as well") {
  test::need_device();
  Ranks ranks(2);
  const FailureState failure;
  auto first = batch();
  (void)ranks[0].bring(0, first.get());
  CHECK(ms_of([&] { ranks[0].wait(first.get(), failure); }) >= 90);
  CHECK(first->state == State::kAlone);
  auto late = batch();
  CHECK(ranks[1].bring(1, late.get()).all.empty());
  CHECK(late->state == State::kAlone);
  // The next batches are brought together again.
  auto next = batch();
  auto other = batch();
  bring_elsewhere(ranks[1], 1, next.get());
  CHECK(ranks[0].bring(0, other.get()).all.size() == 2);
  ranks[0].finish();
}

TEST_CASE("rendezvous: a rank does not wait for ranks that its own thread serves") {
  test::need_device();
  Ranks ranks(2);
  const FailureState failure;
  auto a = batch();
  auto b = batch();
  (void)ranks[0].bring(0, a.get());
  CHECK(ranks[1].bring(1, b.get()).all.size() == 2);
  ranks[1].finish();
  auto alone = batch();
  (void)ranks[0].bring(0, alone.get());
  CHECK(ranks[0].longest_wait_ms() == 0);
  std::thread([&] { CHECK(ranks[0].longest_wait_ms() > 0); }).join();
  ranks[0].wait(alone.get(), failure);
  CHECK(alone->state == State::kAlone);
}

TEST_CASE("rendezvous: a rank that leaves, an abandoned batch and a failure let the others launch alone") {
  test::need_device();
  Ranks ranks(3);
  FailureState failure;
  auto first = batch();
  auto second = batch();
  (void)ranks[0].bring(0, first.get());
  bring_elsewhere(ranks[1], 1, second.get());
  SECTION("a batch is given up") {
    second.reset();
  }
  SECTION("the communicator fails") {
    failure.fail(Status::aborted("the test"));
    ranks[0].wait(first.get(), failure);
  }
  SECTION("a rank leaves") {
    ranks[2].leave(2);
    auto next = batch();
    CHECK(ranks[1].bring(1, next.get()).all.empty());
    CHECK(next->state == State::kAlone);
    CHECK_FALSE(ranks[0].is_one_device(failure));
  }
  CHECK(first->state == State::kAlone);
}

TEST_CASE("rendezvous: all ranks have the same mailboxes, which serve others when ranks and graphs have gone") {
  test::need_device();
  const memory::CudaCurrent current = device().use();
  const Secret secret = new_secret();
  auto ranks = std::make_unique<Ranks>(2, secret);
  const auto mailboxes_of = [](DeviceRendezvous& rendezvous, int rank) {
    auto open = rendezvous.open_mailboxes(kernels());
    if (!open.is_ok() || !*open) throw std::runtime_error("there is no room");
    DirectCall call;
    rendezvous.add_mailboxes(&call, rank);
    CHECK(call.rank == rank);
    return call;
  };
  const DirectCall one = mailboxes_of((*ranks)[0], 0);
  const DirectCall two = mailboxes_of((*ranks)[1], 1);
  CHECK(one.mailboxes == two.mailboxes);
  CHECK(one.control == two.control);
  const unsigned columns = (*ranks)[0].columns();
  CHECK(columns > 0);
  CHECK((*ranks)[0].report(1).outcome == DirectOutcome::kGoes);
  one.control->reports[1] = pack_report(DirectOutcome::kTimeout, 0, 7);
  CHECK((*ranks)[0].report(1).number == 7);
  CHECK((*ranks)[0].report(0).outcome == DirectOutcome::kGoes);
  (*ranks)[0].leave(0);
  CHECK(one.control->stop == 1);
  // A graph.
  std::shared_ptr<DeviceRendezvous> graph = ranks->all[0];
  ranks.reset();
  {
    Ranks next(2, secret);
    CHECK(next.all[0] != graph);
    CHECK(mailboxes_of(next[0], 0).mailboxes[0] != one.mailboxes[0]);
    CHECK(one.control->stop == 1);
  }
  const int live = test::TestDriver::get().live();
  graph.reset();
  // The one that was given back last is taken first.
  Ranks last(2, secret);
  const DirectCall again = mailboxes_of(last[1], 1);
  CHECK(again.mailboxes == one.mailboxes);
  CHECK(again.control->stop == 0);
  CHECK(again.control->reports[1] == 0);
  CHECK(last[0].columns() == columns);
  CHECK(test::TestDriver::get().live() == live);
}

TEST_CASE("rendezvous: a rank that has failed before the mailboxes are open ends the kernels that use them") {
  test::need_device();
  const memory::CudaCurrent current = device().use();
  Ranks ranks(2);
  ranks[1].stop(1);
  auto open = ranks[0].open_mailboxes(kernels());
  REQUIRE(open.is_ok());
  DirectCall call;
  ranks[0].add_mailboxes(&call, 0);
  CHECK(call.control->stop == 1);
}

TEST_CASE("rendezvous: no rank has windows if one has none, and what the others took serves other communicators") {
  test::need_device();
  int live = 0;
  for (int i = 0; i < 20; ++i) {
    const auto rendezvous = DeviceRendezvous::join(new_secret(), peers(1, 1), 0, device());
    int asked = 0;
    // The other rank offers nothing: so no rank tries to map the windows.
    const auto all_gather = [&](const std::string& own) -> Result<std::vector<std::string>> {
      ++asked;
      CHECK(own.size() > 64);
      std::string nothing = own;
      std::fill_n(nothing.begin(), sizeof(std::uint64_t), 0);
      return std::vector<std::string>{own, nothing};
    };
    auto opened = rendezvous->open_windows(0, peers(1, 1), &kernels(), all_gather);
    REQUIRE(opened.is_ok());
    CHECK_FALSE(*opened);
    CHECK(asked == 1);
    if (i == 0) live = test::TestDriver::get().live();
  }
  CHECK(test::TestDriver::get().live() == live);
}

TEST_CASE("rendezvous: another rank's description of its window is checked") {
  test::need_device();
  const auto rendezvous = DeviceRendezvous::join(new_secret(), peers(1, 1), 0, device());
  const auto all_gather = [&](const std::string& own) -> Result<std::vector<std::string>> {
    std::string odd = own;
    odd[0] = 1;  // a byte of the size, which must be a power of two
    return std::vector<std::string>{own, odd};
  };
  auto opened = rendezvous->open_windows(0, peers(1, 1), &kernels(), all_gather);
  REQUIRE_FALSE(opened.is_ok());
  CHECK(opened.status().message().find("window cannot be read") != std::string::npos);
}

}  // namespace tutti::internal
