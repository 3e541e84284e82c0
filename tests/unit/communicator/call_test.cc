// The executor's operation for a call depends only on that call.
#include "calls/call.h"

#include <vector>

#include "catch_compat.h"

namespace tutti::internal {
namespace {

constexpr std::size_t kCount = 16;

struct Bench {
  std::vector<float> send = std::vector<float>(4 * kCount);
  std::vector<float> recv = std::vector<float>(4 * kCount);
  std::vector<float> scratch = std::vector<float>(4 * kCount);
  executor::Plan with_scratch;
  executor::Plan without_scratch;

  Bench() { with_scratch.schedule.scratch_chunks = 3; }
  executor::Operation bind(Collective collective, ReduceOp op, const executor::Plan& plan) {
    const Call call{collective, send.data(), recv.data(), kCount, DataType::kFloat32, op, 1};
    const bool by_block = collective == Collective::kAllGather || collective == Collective::kReduceScatter;
    const std::size_t bytes = kCount * sizeof(float) * (by_block ? 4 : 1);
    return bind_call(call, plan, {7, 8, 9}, bytes, {2, 4, scratch.data()});
  }
};

const void* base(const executor::Operation& op, schedule::Buffer buffer) {
  return op.buffers[static_cast<int>(buffer)].base;
}

}  // namespace

TEST_CASE("only reductions have kernels, and only an average has a divisor") {
  Bench bench;
  for (const Collective c : {Collective::kAllReduce, Collective::kReduce, Collective::kReduceScatter}) {
    const executor::Operation average = bench.bind(c, ReduceOp::kAvg, bench.with_scratch);
    CHECK(average.kernels == &reduction::kernels(DataType::kFloat32, ReduceOp::kAvg));
    CHECK(average.divisor == 4);
    CHECK(bench.bind(c, ReduceOp::kMax, bench.with_scratch).divisor == 0);
  }
  // The same after an average as before it: with kernels the executor would advertise buffers that no rank writes to.
  for (const Collective c : {Collective::kBroadcast, Collective::kAllGather}) {
    const executor::Operation copies = bench.bind(c, ReduceOp::kAvg, bench.without_scratch);
    CHECK(copies.kernels == nullptr);
    CHECK(copies.divisor == 0);
    CHECK(base(copies, schedule::Buffer::kScratch) == nullptr);
    CHECK(copies.buffers[2].size == 0);
  }
  CHECK(bench.bind(Collective::kBarrier, ReduceOp::kMax, bench.without_scratch).kernels != nullptr);
}

TEST_CASE("a buffer of one block is addressed as part of the vector") {
  Bench bench;
  constexpr std::size_t kBlock = kCount * sizeof(float);
  const auto* send = reinterpret_cast<const std::byte*>(bench.send.data());
  const auto* recv = reinterpret_cast<const std::byte*>(bench.recv.data());
  const executor::Operation gather = bench.bind(Collective::kAllGather, ReduceOp::kSum, bench.without_scratch);
  CHECK(base(gather, schedule::Buffer::kInput) == send - 2 * kBlock);
  CHECK(gather.buffers[0].begin == 2 * kBlock);
  CHECK(gather.buffers[0].size == 3 * kBlock);
  CHECK(base(gather, schedule::Buffer::kOutput) == recv);
  CHECK(gather.buffers[1].size == 4 * kBlock);
  const executor::Operation scatter = bench.bind(Collective::kReduceScatter, ReduceOp::kSum, bench.with_scratch);
  CHECK(base(scatter, schedule::Buffer::kInput) == send);
  CHECK(base(scatter, schedule::Buffer::kOutput) == recv - 2 * kBlock);
  CHECK(base(scatter, schedule::Buffer::kScratch) == bench.scratch.data());
  CHECK(scatter.buffers[2].size == 3 * kBlock);
  CHECK(scatter.block_elements == kCount);
  CHECK(scatter.element_bytes == sizeof(float));
  CHECK(scatter.plan == &bench.with_scratch);
  CHECK(scatter.fingerprint == transport::Fingerprint{7, 8, 9});
}

}  // namespace tutti::internal
