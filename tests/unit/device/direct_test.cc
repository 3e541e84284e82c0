// Ranks whose kernels rendezvous on a device (device/direct.h), run by host threads.
#include "device/direct.h"

#include <memory>
#include <thread>

#include "catch_compat.h"
#include "direct_host.h"

namespace tutti::internal {
namespace {

// Two ranks with a vector each.
struct Pair {
  static constexpr std::size_t kCount = 16;
  std::array<std::array<float, kCount>, 2> in{};
  std::array<std::array<float, kCount>, 2> out{};
  std::array<std::unique_ptr<DirectMailbox>, 2> mailboxes{std::make_unique<DirectMailbox>(),
                                                          std::make_unique<DirectMailbox>()};
  DirectControl control;

  DirectCall call(int rank, std::uint64_t timeout_ns) {
    DirectCall made = direct_call(Collective::kAllReduce, DataType::kFloat32, ReduceOp::kSum, 0, 2);
    const auto r = static_cast<std::size_t>(rank);
    made.rank = rank;
    made.count = kCount;
    made.element_bytes = sizeof(float);
    made.in[r] = reinterpret_cast<const std::byte*>(in[r].data());
    made.out[r] = reinterpret_cast<std::byte*>(out[r].data());
    made.mailboxes[0] = mailboxes[0].get();
    made.mailboxes[1] = mailboxes[1].get();
    made.control = &control;
    made.timeout_ns = timeout_ns;
    return made;
  }
};

auto block() {
  return test::HostBlock(0, 1, 0, [](std::byte* at, std::size_t) { return at; });
}

}  // namespace

TEST_CASE("direct: two ranks in a rendezvous sum their vectors") {
  Pair pair;
  pair.in[0].fill(1);
  pair.in[1].fill(2);
  const auto run = [&](int rank) {
    auto own = block();
    const DirectCall call = pair.call(rank, 60'000'000'000);
    run_directly(call, own);
  };
  std::thread other(run, 1);
  run(0);
  other.join();
  for (const auto& out : pair.out) CHECK(out[Pair::kCount - 1] == 3);
  CHECK(pair.control.reports[0] == 0);
  CHECK(pair.control.reports[1] == 0);
}

TEST_CASE("direct: a rank whose peer's launch dies after the rendezvous ends at the timeout and reports the peer") {
  Pair pair;
  std::thread dies([&] {
    auto own = block();
    const DirectCall call = pair.call(1, 60'000'000'000);
    (void)exchange_notices(call, own, 1);
  });
  auto own = block();
  const DirectCall call = pair.call(0, 20'000'000);
  // The other may not arrive within so short a time: then it ends as well.
  run_directly(call, own);
  const DirectReport report = unpack_report(pair.control.reports[0]);
  CHECK(report.outcome == DirectOutcome::kTimeout);
  CHECK(report.peer == 1);
  std::atomic_ref(pair.control.stop).store(1);
  dies.join();
}

}  // namespace tutti::internal
