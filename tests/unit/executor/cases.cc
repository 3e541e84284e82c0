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

bool runs_in_place(const Case& c) {
  return c.in_place && input_is_output(c.entry->collective);
}

std::size_t blocks(const Case& c, Holds holds) {
  return blocks_in(holds, c.entry->collective, c.ranks);
}

// What rank must find in its output.
std::vector<std::int32_t> expected(const Case& c, int rank) {
  const CollectiveInfo& info = info_of(c.entry->collective);
  std::vector<std::int32_t> out;
  if (!info.has_data || !has_any(info.output, rank, c.root)) return out;
  const std::size_t own = static_cast<std::size_t>(rank) * c.count;
  const std::size_t first = gets_own_block(info.collective) ? own : 0;
  const auto sum = [&](int ranks, std::size_t i) {
    std::int32_t s = 0;
    for (int r = 0; r < ranks; ++r) s += value(r, i);
    return s;
  };
  const std::size_t elements = c.count * blocks(c, info.output);
  out.reserve(elements);
  for (std::size_t i = 0; i < elements; ++i) {
    const auto owner = static_cast<int>(i / c.count);
    const std::size_t within = i % c.count;
    switch (info.origin) {
      case Origin::kAllCombined: out.push_back(sum(c.ranks, first + i)); break;
      case Origin::kRoot: out.push_back(value(c.root, first + i)); break;
      case Origin::kOwner: out.push_back(value(owner, within)); break;
      case Origin::kPeer: out.push_back(value(owner, own + within)); break;
      case Origin::kPrefix: out.push_back(sum(rank + 1, i)); break;
      case Origin::kPrefixBefore: out.push_back(sum(rank, i)); break;
    }
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
  const CollectiveInfo& info = info_of(c.entry->collective);
  const std::size_t in = c.count * blocks(c, info.input);
  const std::size_t out = c.count * blocks(c, info.output);
  d->input.resize(in);
  for (std::size_t i = 0; i < in; ++i) d->input[i] = value(rank, i);
  d->output.assign(runs_in_place(c) ? std::max(in, out) : out, kGuard);
  d->scratch.assign(8 * std::max(in, out), kGuard);
  if (!runs_in_place(c)) return;
  const std::size_t own = static_cast<std::size_t>(rank) * c.count;
  const std::size_t at = gives_own_block(info.collective) ? own : 0;
  std::copy(d->input.begin(), d->input.end(), d->output.begin() + static_cast<std::ptrdiff_t>(at));
}

void bind(const Case& c, int rank, Data* d, executor::Operation* op) {
  const std::size_t own = static_cast<std::size_t>(rank) * c.count;
  const Collective k = c.entry->collective;
  op->block_elements = c.count;
  op->bytes = c.count * sizeof(std::int32_t) * blocks_of(k, c.ranks);
  op->element_bytes = sizeof(std::int32_t);
  op->kernels = &reduction::kernels(DataType::kInt32, ReduceOp::kSum);
  op->fingerprint = executor::make_fingerprint(1, k, DataType::kInt32, ReduceOp::kSum, c.root, c.count);
  op->buffers[0] = source(runs_in_place(c) ? d->output : d->input, gives_own_block(k) && !runs_in_place(c) ? own : 0);
  op->buffers[1] = source(d->output, gets_own_block(k) && !runs_in_place(c) ? own : 0);
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
                                    << c.count << " slice " << c.slice_chunk_bytes << " in place " << runs_in_place(c)
                                    << " error " << status.message());
  REQUIRE(status.is_ok());
  for (int r = 0; r < c.ranks; ++r) {
    const Data& d = data[static_cast<std::size_t>(r)];
    const auto want = expected(c, r);
    const bool scattered = runs_in_place(c) && gets_own_block(c.entry->collective);
    const std::size_t at = scattered ? static_cast<std::size_t>(r) * c.count : 0;
    INFO("rank " << r);
    REQUIRE(std::equal(want.begin(), want.end(), d.output.begin() + static_cast<std::ptrdiff_t>(at)));
    bool untouched = true;
    for (std::size_t i = 0; i < d.input.size(); ++i) untouched &= d.input[i] == value(r, i);
    REQUIRE(untouched);
  }
}

}  // namespace tutti::internal::test
