// Every operator of every datatype on a CUDA device gives the same bits as on the host.
#include <cstring>
#include <functional>

#include "catch_compat.h"
#include "device_rig.h"
#include "reduction/device_reduction.h"
#include "reference/reduction.h"

using namespace tutti::internal;
using namespace tutti::internal::test;

namespace {

// Calls f(type, op) for all defined combinations.
void for_all(const std::function<void(DataType, ReduceOp)>& f) {
  for (int t = 0; t < kDataTypes; ++t) {
    for (int o = 0; o < kReduceOps; ++o) {
      if (supports(static_cast<DataType>(t), static_cast<ReduceOp>(o)))
        f(static_cast<DataType>(t), static_cast<ReduceOp>(o));
    }
  }
}

struct Case {
  DataType type;
  ReduceOp op;
  int inputs;
  std::size_t count;
  std::size_t in_offset = 0;  // elements before each input, i times as many before the i-th
  std::size_t out_offset = 0;
  bool in_place = false;
  std::uint32_t divisor = 0;
};

std::string name_of(const Case& c) {
  return "type " + std::to_string(static_cast<int>(c.type)) + ", op " + std::to_string(static_cast<int>(c.op)) +
         ", inputs " + std::to_string(c.inputs) + ", count " + std::to_string(c.count) + ", offsets " +
         std::to_string(c.in_offset) + " and " + std::to_string(c.out_offset) + (c.in_place ? ", in place" : "") +
         ", divisor " + std::to_string(c.divisor);
}

// Empty, or where the device's bits differ.
std::string compare(const Case& c, const std::vector<std::vector<std::byte>>& inputs) {
  const std::size_t size = size_of(c.type);
  std::vector<std::byte> wanted = inputs[0];
  for (int i = 1; i < c.inputs; ++i)
    reduction::combine_reference(c.type, c.op, wanted.data(), wanted.data(), inputs[i].data(), c.count);
  if (c.divisor != 0) reduction::finish_reference(c.type, wanted.data(), c.count, c.divisor);

  reduction::DeviceReduction r;
  r.type = c.type;
  r.op = c.op;
  r.divisor = c.divisor;
  r.inputs = c.inputs;
  r.outputs = 2;
  r.count = c.count;
  std::vector<DeviceArray<std::byte>> arrays;
  for (int i = 0; i < c.inputs; ++i) {
    std::vector<std::byte> padded(c.in_offset * i * size);
    padded.insert(padded.end(), inputs[i].begin(), inputs[i].end());
    arrays.emplace_back(padded);
    r.in[i] = arrays.back().get() + c.in_offset * i * size;
  }
  const DeviceArray<std::byte> outs[2] = {DeviceArray<std::byte>((c.count + c.out_offset + 1) * size),
                                          DeviceArray<std::byte>((c.count + c.out_offset + 1) * size)};
  for (int o = 0; o < 2; ++o) r.out[o] = outs[o].get() + c.out_offset * size;
  if (c.in_place) r.out[1] = const_cast<std::byte*>(r.in[c.inputs - 1]);
  must(reduction::reduce_on_device(r, nullptr), "reduce_on_device");
  must(cudaDeviceSynchronize(), "reduce_on_device");
  std::vector<std::byte> got(c.count * size);
  for (int o = 0; o < 2; ++o) {
    must(cudaMemcpy(got.data(), r.out[o], got.size(), cudaMemcpyDeviceToHost), "cudaMemcpy");
    for (std::size_t i = 0; i < c.count; ++i) {
      if (std::memcmp(got.data() + i * size, wanted.data() + i * size, size) != 0)
        return name_of(c) + ": output " + std::to_string(o) + ", element " + std::to_string(i);
    }
  }
  if (!c.in_place) {
    const std::vector<std::byte> whole = outs[0].read();
    for (std::size_t i = 0; i < whole.size(); ++i) {
      const bool outside = i < c.out_offset * size || i >= (c.out_offset + c.count) * size;
      if (outside && whole[i] != std::byte{}) return name_of(c) + ": written outside the output";
    }
  }
  return "";
}

std::string compare(const Case& c) {
  std::vector<std::vector<std::byte>> inputs;
  for (int i = 0; i < c.inputs; ++i) inputs.push_back(random_bytes(c.count * size_of(c.type), 77 * i + 1));
  return compare(c, inputs);
}

}  // namespace

TEST_CASE("any bits of every datatype, every operator") {
  for_all([](DataType type, ReduceOp op) {
    for (const int inputs : {2, 3, 8}) CHECK(compare({type, op, inputs, 10'007}) == "");
  });
}

TEST_CASE("all pairs of 8-bit elements") {
  constexpr std::size_t kValues = 256;
  std::vector<std::vector<std::byte>> inputs(2);
  for (std::size_t a = 0; a < kValues; ++a) {
    for (std::size_t b = 0; b < kValues; ++b) {
      inputs[0].push_back(static_cast<std::byte>(a));
      inputs[1].push_back(static_cast<std::byte>(b));
    }
  }
  for_all([&](DataType type, ReduceOp op) {
    if (size_of(type) == 1) CHECK(compare({type, op, 2, kValues * kValues}, inputs) == "");
  });
}

TEST_CASE("all values of 16-bit elements with some") {
  constexpr std::size_t kValues = 65'536;
  for_all([&](DataType type, ReduceOp op) {
    if (size_of(type) != 2) return;
    std::vector<std::byte> all(2 * kValues);
    for (std::size_t i = 0; i < kValues; ++i) {
      const auto code = static_cast<std::uint16_t>(i);
      std::memcpy(all.data() + 2 * i, &code, 2);
    }
    for (const std::uint32_t seed : {3u, 4u, 5u, 6u})
      CHECK(compare({type, op, 2, kValues}, {all, random_bytes(2 * kValues, seed)}) == "");
  });
}

TEST_CASE("averages are divided") {
  for_all([](DataType type, ReduceOp op) {
    if (op != ReduceOp::kAvg) return;
    for (const std::uint32_t divisor : {1u, 2u, 3u, 7u, 300u})
      CHECK(compare({type, op, 2, 5'003, 0, 0, false, divisor}) == "");
  });
}

TEST_CASE("vectors that lie differently, short ones, in place") {
  for_all([](DataType type, ReduceOp op) {
    for (const std::size_t count :
         {std::size_t{0}, std::size_t{1}, std::size_t{5}, std::size_t{31}, std::size_t{4'099}}) {
      CHECK(compare({type, op, 2, count, 1, 0}) == "");
      CHECK(compare({type, op, 2, count, 0, 1}) == "");
      CHECK(compare({type, op, 2, count, 0, 3, true}) == "");
      CHECK(compare({type, op, 3, count, 16, 16}) == "");
    }
  });
}

TEST_CASE("copies") {
  for (const DataType type : {DataType::kUint8, DataType::kFloat16, DataType::kFloat32, DataType::kComplex128}) {
    for (const std::size_t offset : {std::size_t{0}, std::size_t{1}})
      CHECK(compare({type, type == DataType::kUint8 ? ReduceOp::kBand : ReduceOp::kSum, 1, 70'001, 0, offset}) == "");
  }
}
