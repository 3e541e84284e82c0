// All-reduce by the kernel of direct collectives: every datatype and operator, by one launch and by a rendezvous. The
// other collectives are tested through the library (tests/device).
#include "catch_compat.h"
#include "direct_job.h"
#include "reference/reduction.h"

using namespace tutti::internal;
using namespace tutti::internal::test;

namespace {

struct Shape {
  int ranks;
  DataType type;
  ReduceOp op;
  std::size_t count;
  bool in_place;
};

// Checks the outputs of all ranks.
void check(DirectJob& job, const Shape& shape, bool together) {
  const std::size_t bytes = shape.count * size_of(shape.type);
  std::vector<DeviceArray<std::byte>> in;
  std::vector<DeviceArray<std::byte>> out;
  std::vector<std::byte> wanted;
  for (int r = 0; r < shape.ranks; ++r) {
    const std::vector<std::byte> input = random_bytes(bytes, static_cast<std::uint32_t>(r));
    if (r == 0) wanted = input;
    if (r > 0) {
      reduction::combine_reference(shape.type, shape.op, wanted.data(), wanted.data(), input.data(), shape.count);
    }
    in.emplace_back(input);
    out.emplace_back(bytes);
  }
  const bool avg = shape.op == ReduceOp::kAvg;
  if (avg) {
    reduction::finish_reference(shape.type, wanted.data(), shape.count, static_cast<std::size_t>(shape.ranks));
  }
  DirectCall all;
  for (int r = 0; r < shape.ranks; ++r) {
    const auto i = static_cast<std::size_t>(r);
    DirectCall call = job.call(r, in[i].get());
    if (!shape.in_place) call.out[i] = out[i].get();
    call.count = shape.count;
    call.type = shape.type;
    call.op = shape.op;
    call.element_bytes = size_of(shape.type);
    call.divisor = avg ? static_cast<std::uint32_t>(shape.ranks) : 0;
    if (!together) job.launch(call, shape.count > 1'000 ? 8 : 1);
    const auto ins = all.in;
    const auto outs = all.out;
    all = call;
    all.in = ins;
    all.out = outs;
    all.in[i] = call.in[i];
    all.out[i] = call.out[i];
  }
  all.rank = -1;
  if (together) job.launch_in(all, 0, job.streams[0].get());
  job.finish();
  for (int r = 0; r < shape.ranks; ++r) {
    const bool right = (shape.in_place ? in : out)[static_cast<std::size_t>(r)].read() == wanted;
    CHECK(right);
  }
}

}  // namespace

TEST_CASE("direct all-reduce: every datatype and operator, the same bits on all ranks") {
  for (const int ranks : {1, 2, 3, 4, 8}) {
    DirectJob job(ranks);
    for (int t = 0; t < kDataTypes; ++t) {
      for (int o = 0; o < kReduceOps; ++o) {
        const auto type = static_cast<DataType>(t);
        const auto op = static_cast<ReduceOp>(o);
        if (!supports(type, op)) continue;
        for (const std::size_t count : {std::size_t{1}, std::size_t{257}, std::size_t{40'003}}) {
          for (const bool together : {true, false}) {
            INFO("ranks " << ranks << ", type " << t << ", op " << o << ", count " << count << ", together "
                          << together);
            check(job, {ranks, type, op, count, count == 257}, together);
          }
        }
      }
    }
  }
}

TEST_CASE("direct all-reduce: a graph is replayed") {
  DirectJob job(2);
  constexpr std::size_t kCount = 10'000;
  const DeviceArray<float> in[2] = {DeviceArray<float>(std::vector<float>(kCount, 1)),
                                    DeviceArray<float>(std::vector<float>(kCount, 2))};
  // In place: each replay doubles the sum.
  std::vector<cudaGraphExec_t> graphs;
  for (int r = 0; r < 2; ++r) {
    DirectCall call = job.call(r, in[r].bytes());
    call.count = kCount;
    graphs.push_back(job.capture(call, 1, 4));
  }
  for (int i = 0; i < 10; ++i) job.replay(graphs);
  job.finish();
  for (const auto& array : in) CHECK((array.read() == std::vector<float>(kCount, 3 * 512)));
  for (const cudaGraphExec_t graph : graphs) must(cudaGraphExecDestroy(graph), "destroy");
}
