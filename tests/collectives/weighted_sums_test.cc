// Pre-multiplied sums: each rank multiplies its elements by its own number.
#include <array>
#include <cstring>

#include "reduction/reduction.h"
#include "reference/reduction.h"
#include "suites.h"

namespace tutti::internal::test {
namespace {

// 0, 1, -1 and 2 in each datatype; their sums below are exact in every order.
std::array<std::uint64_t, 4> numbers(DataType type) {
  switch (type) {
    case DataType::kFloat16: return {0, 0x3c00, 0xbc00, 0x4000};
    case DataType::kBfloat16: return {0, 0x3f80, 0xbf80, 0x4000};
    case DataType::kFloat8E4M3: return {0, 0x38, 0xb8, 0x40};
    case DataType::kFloat8E5M2: return {0, 0x3c, 0xbc, 0x40};
    case DataType::kFloat32:
    case DataType::kComplex64: return {0, 0x3f800000, 0xbf800000, 0x40000000};
    case DataType::kFloat64:
    case DataType::kComplex128: return {0, 0x3ff0000000000000, 0xbff0000000000000, 0x4000000000000000};
    default: return {0, 1, ~std::uint64_t{0}, 2};
  }
}

void put(std::byte* to, DataType type, std::size_t number) {
  const std::size_t part = is_complex(type) ? size_of(type) / 2 : size_of(type);
  std::memset(to, 0, size_of(type));
  std::memcpy(to, &numbers(type)[number], part);
  // The imaginary part of a complex number is its real part, once more.
  if (is_complex(type)) std::memcpy(to + part, to, part);
}

// sum over the first `end` ranks of scalar * x, rounded twice. By the reference, which has its own NaNs.
std::vector<std::byte> expected_sum(DataType type, const std::vector<std::vector<std::byte>>& scalars,
                                    const std::vector<std::vector<std::byte>>& inputs, int end, bool has_nans) {
  const std::size_t size = size_of(type);
  const auto combine = [&](ReduceOp op, std::byte* target, const std::byte* with, std::size_t count) {
    if (has_nans) return reduction::kernels(type, op).combine(target, target, with, count);
    reduction::combine_reference(type, op, target, target, with, count);
  };
  std::vector<std::byte> total;
  for (int r = 0; r < end; ++r) {
    std::vector<std::byte> product = inputs[static_cast<std::size_t>(r)];
    for (std::size_t i = 0; i < product.size(); i += size) {
      combine(ReduceOp::kProd, &product[i], scalars[static_cast<std::size_t>(r)].data(), 1);
    }
    if (r > 0) {
      combine(ReduceOp::kSum, total.data(), product.data(), total.size() / size);
    } else {
      total = product;
    }
  }
  return total;
}

struct Sum {
  DataType type;
  std::size_t count;
  bool in_place;
  tuttiScalarResidence_t residence;
  Collective collective;
};

// `any_bits`: REQUIRES: two ranks, or one.
std::string run_sum(tuttiComm_t comm, int rank, int ranks, const Sum& s, bool any_bits, tuttiStream_t stream) {
  const std::size_t size = size_of(s.type);
  std::vector<std::vector<std::byte>> inputs;
  std::vector<std::vector<std::byte>> scalars;
  const std::size_t count = s.count * blocks_of(s.collective, ranks);
  for (int r = 0; r < ranks; ++r) {
    inputs.emplace_back(count * size);
    scalars.emplace_back(size);
    if (any_bits) {
      fill_with_any_bits(inputs.back().data(), s.type, count, r);
      fill_with_any_bits(scalars.back().data(), s.type, 1, r + 2);
      continue;
    }
    for (std::size_t i = 0; i < count; ++i)
      put(&inputs.back()[i * size], s.type, (i + static_cast<std::size_t>(r)) % 7 % 2);
    put(scalars.back().data(), s.type, r % 2 == 1 ? 2 : r == 2 ? 3 : 1);
  }
  const auto me = static_cast<std::size_t>(rank);
  std::vector<std::byte> scalar = scalars[me];
  const bool reads_later = s.residence == tuttiScalarDevice;
  if (reads_later) put(scalar.data(), s.type, 0);
  tuttiRedOp_t op = tuttiSum;
  const auto type = static_cast<tuttiDataType_t>(public_value(s.type));
  if (tuttiRedOpCreatePreMulSum(&op, scalar.data(), type, s.residence, comm) != tuttiSuccess)
    return tuttiGetLastError(comm);
  if (reads_later) {
    scalar = scalars[me];
  } else {
    put(scalar.data(), s.type, 0);
  }
  std::vector<std::byte> send = inputs[me];
  std::vector<std::byte> recv(send.size());
  std::byte* const target = s.in_place ? send.data() : recv.data();
  const bool scatters = has_blocks(s.collective);
  const std::vector<std::size_t> counts(static_cast<std::size_t>(ranks), s.count);
  std::byte* const own = target + (scatters && s.in_place ? me * s.count * size : 0);
  const auto call = [&] {
    switch (s.collective) {
      case Collective::kReduceScatter: return tuttiReduceScatter(send.data(), own, s.count, type, op, comm, stream);
      case Collective::kReduceScatterV:
        return tuttiReduceScatterV(send.data(), own, counts.data(), type, op, comm, stream);
      case Collective::kScan: return tuttiScan(send.data(), target, s.count, type, op, comm, stream);
      default: return tuttiAllReduce(send.data(), target, s.count, type, op, comm, stream);
    }
  };
  const tuttiResult_t result = call();
  if (result != tuttiSuccess || tuttiRedOpDestroy(op, comm) != tuttiSuccess) return tuttiGetLastError(comm);
  if (stream != nullptr && tuttiStreamSynchronize(stream) != tuttiSuccess) return tuttiGetLastError(comm);
  const auto expected =
      expected_sum(s.type, scalars, inputs, s.collective == Collective::kScan ? rank + 1 : ranks, any_bits);
  const std::byte* const wanted = expected.data() + (scatters ? me * s.count * size : 0);
  if (s.count == 0 || std::memcmp(own, wanted, s.count * size) == 0) return {};
  return std::string("pre-multiplied ") + name_of(s.collective) + " of " + std::to_string(s.count) + " " +
         name_of(s.type) + (any_bits ? " of any bits" : "") + ": wrong";
}

std::string run_sums(tuttiComm_t comm, int rank, int ranks) {
  tuttiStream_t stream = nullptr;
  if (tuttiStreamCreate(&stream) != tuttiSuccess) return "no stream";
  std::string wrong;
  std::size_t turn = 0;
  for (int t = 0; t < kDataTypes; ++t) {
    const auto type = static_cast<DataType>(t);
    if (type == DataType::kBool) continue;
    for (const Collective c :
         {Collective::kAllReduce, Collective::kReduceScatter, Collective::kReduceScatterV, Collective::kScan}) {
      for (const std::size_t count : {0, 1, 17, 4097, 50'001}) {
        const std::size_t block = count > 4097 ? count / blocks_of(c, ranks) : count;
        const Sum s{type, block, turn % 2 == 1, turn % 3 == 0 ? tuttiScalarDevice : tuttiScalarHostImmediate, c};
        const bool any_bits = ranks <= 2 && (is_float(type) || is_complex(type)) && turn % 2 == 0;
        if (wrong.empty()) wrong = run_sum(comm, rank, ranks, s, any_bits, turn % 5 == 4 ? stream : nullptr);
        ++turn;
      }
    }
  }
  if (tuttiStreamDestroy(stream) != tuttiSuccess && wrong.empty()) wrong = "the stream failed";
  return wrong;
}

void require_sums(RunJob run, int ranks, const std::string& transports) {
  const auto outcomes =
      run(ranks, transports, [&](tuttiComm_t comm, int rank, int n) { return Outcome{run_sums(comm, rank, n)}; });
  INFO(transports << " with " << ranks << " ranks");
  REQUIRE(wrong_of(outcomes) == "");
}

}  // namespace

TEST_CASE("pre-multiplied sums over shared memory", "[shm]") {
  for (const int ranks : {1, 2, 3, 9}) require_sums(run_threads, ranks, "shm");
  for (const int ranks : {2, 4}) require_sums(run_processes, ranks, "shm");
}

TEST_CASE("pre-multiplied sums over TCP", "[tcp]") {
  require_sums(run_threads, 3, "tcp");
  require_sums(run_processes, 2, "tcp");
}

}  // namespace tutti::internal::test
