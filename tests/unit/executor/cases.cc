#include "cases.h"

#include <algorithm>

#include "catch_compat.h"

namespace tutti::internal::test {
namespace {

// Rank r's element i.
std::int32_t value(int rank, std::size_t i) {
  return static_cast<std::int32_t>((static_cast<std::uint64_t>(rank + 1) * 2654435761U + i * 40503U) >> 3 & 0xffff);
}

struct Data {
  std::vector<std::int32_t> input;
  std::vector<std::int32_t> output;
  std::vector<std::int32_t> scratch;
};

constexpr std::int32_t kGuard = -12345;

// What rank must find in its output.
std::vector<std::int32_t> expected(Collective c, int ranks, int rank, int root, std::size_t count) {
  std::vector<std::int32_t> out;
  out.reserve(c == Collective::kAllGather ? count * static_cast<std::size_t>(ranks) : count);
  const auto sum = [&](std::size_t i) {
    std::int32_t s = 0;
    for (int r = 0; r < ranks; ++r) s += value(r, i);
    return s;
  };
  switch (c) {
    case Collective::kAllReduce:
      for (std::size_t i = 0; i < count; ++i) out.push_back(sum(i));
      break;
    case Collective::kReduce:
      for (std::size_t i = 0; i < count && rank == root; ++i) out.push_back(sum(i));
      break;
    case Collective::kBroadcast:
      for (std::size_t i = 0; i < count; ++i) out.push_back(value(root, i));
      break;
    case Collective::kAllGather:
      for (int r = 0; r < ranks; ++r) {
        for (std::size_t i = 0; i < count; ++i) out.push_back(value(r, i));
      }
      break;
    case Collective::kReduceScatter:
      for (std::size_t i = 0; i < count; ++i) out.push_back(sum(static_cast<std::size_t>(rank) * count + i));
      break;
    case Collective::kBarrier: break;
  }
  return out;
}

transport::Source source(std::vector<std::int32_t>& v, std::size_t shift) {
  transport::Source s;
  s.base = reinterpret_cast<std::byte*>(v.data()) - shift * sizeof(std::int32_t);
  s.size = (shift + v.size()) * sizeof(std::int32_t);
  return s;
}

void fill(const Case& c, int rank, Data* d) {
  const auto n = static_cast<std::size_t>(c.ranks);
  const auto me = static_cast<std::size_t>(rank);
  const std::size_t in = c.entry->collective == Collective::kReduceScatter ? c.count * n : c.count;
  const std::size_t out = c.entry->collective == Collective::kAllGather ? c.count * n : c.count;
  d->input.resize(in);
  for (std::size_t i = 0; i < in; ++i) d->input[i] = value(rank, i);
  d->output.assign(out, kGuard);
  d->scratch.assign(std::max(in, out), kGuard);
  if (!c.in_place) return;
  if (c.entry->collective == Collective::kAllGather) {
    std::copy(d->input.begin(), d->input.end(), d->output.begin() + static_cast<std::ptrdiff_t>(me * c.count));
  } else if (c.entry->collective == Collective::kReduceScatter) {
    d->output = d->input;
  } else {
    d->output = d->input;
  }
}

void bind(const Case& c, int rank, Data* d, executor::Operation* op) {
  const std::size_t own = static_cast<std::size_t>(rank) * c.count;
  const Collective k = c.entry->collective;
  op->block_elements = c.count;
  op->element_bytes = sizeof(std::int32_t);
  op->kernels = &reduction::kernels(DataType::kInt32, ReduceOp::kSum);
  op->fingerprint = executor::make_fingerprint(1, k, DataType::kInt32, ReduceOp::kSum, c.root, c.count);
  op->buffers[0] = source(c.in_place ? d->output : d->input, k == Collective::kAllGather && !c.in_place ? own : 0);
  op->buffers[1] = source(d->output, k == Collective::kReduceScatter && !c.in_place ? own : 0);
  op->buffers[2] = source(d->scratch, 0);
}

Status run_on(const Case& c, Rig& rig, std::vector<Data>* data) {
  data->resize(static_cast<std::size_t>(c.ranks));
  for (int r = 0; r < c.ranks; ++r) fill(c, r, &(*data)[static_cast<std::size_t>(r)]);
  return rig.run(*c.entry, c.root, c.slice_chunk_bytes,
                 [&](int r, executor::Operation* op) { bind(c, r, &(*data)[static_cast<std::size_t>(r)], op); });
}

}  // namespace

Status run(const Case& c, Rig& rig) {
  std::vector<Data> data;
  return run_on(c, rig, &data);
}

void check(const Case& c, Rig& rig) {
  std::vector<Data> data;
  const Status status = run_on(c, rig, &data);
  INFO(name_of(c.entry->collective) << " " << c.entry->name << " ranks " << c.ranks << " root " << c.root << " count "
                                    << c.count << " slice " << c.slice_chunk_bytes << " in place " << c.in_place
                                    << " error " << status.message());
  REQUIRE(status.is_ok());
  for (int r = 0; r < c.ranks; ++r) {
    const Data& d = data[static_cast<std::size_t>(r)];
    const auto want = expected(c.entry->collective, c.ranks, r, c.root, c.count);
    const bool scattered = c.in_place && c.entry->collective == Collective::kReduceScatter;
    const std::size_t at = scattered ? static_cast<std::size_t>(r) * c.count : 0;
    INFO("rank " << r);
    REQUIRE(std::equal(want.begin(), want.end(), d.output.begin() + static_cast<std::ptrdiff_t>(at)));
    bool untouched = true;
    for (std::size_t i = 0; i < d.input.size(); ++i) untouched &= d.input[i] == value(r, i);
    REQUIRE(untouched);
  }
}

}  // namespace tutti::internal::test
