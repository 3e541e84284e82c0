#include "cases.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "catch_compat.h"

namespace tutti::internal::test {
namespace {

// Rank r's element i.
std::int32_t value(int rank, std::size_t i) {
  return static_cast<std::int32_t>((static_cast<std::uint64_t>(rank + 1) * 2654435761U + i * 40503U) >> 3 & 0xffff);
}

// The values of a rank, and the sums of the first ranks' values. Each is computed once and then copied or compared as a
// whole: element by element, under a sanitizer, that took far longer than the code under test.
class Vectors {
 public:
  // At least `elements` elements. The reference is valid until the next call for the same rank.
  const std::vector<std::int32_t>& of(int rank, std::size_t elements) {
    std::vector<std::int32_t>& known = values_[rank];
    const std::size_t had = known.size();
    if (had >= elements) return known;
    known.resize(elements);
    for (std::size_t i = had; i < elements; ++i) known[i] = value(rank, i);
    return known;
  }
  const std::vector<std::int32_t>& sum_of(int ranks, std::size_t elements) {
    std::vector<std::int32_t>& known = sums_[ranks];
    if (known.size() >= elements) return known;
    known.assign(elements, 0);
    for (int r = 0; r < ranks; ++r) {
      const std::vector<std::int32_t>& summand = of(r, elements);
      for (std::size_t i = 0; i < elements; ++i) known[i] += summand[i];
    }
    return known;
  }

 private:
  std::map<int, std::vector<std::int32_t>> values_;
  std::map<int, std::vector<std::int32_t>> sums_;
};

Vectors& vectors() {
  static Vectors all;
  return all;
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

// Whether rank's output, from `at` on, is correct by the definition of the collective.
bool is_expected(const Case& c, int rank, const std::vector<std::int32_t>& output, std::size_t at) {
  const CollectiveInfo& info = info_of(c.entry->collective);
  if (!info.has_data || !has_any(info.output, rank, c.root)) return true;
  const std::size_t own = static_cast<std::size_t>(rank) * c.count;
  const std::size_t first = gets_own_block(info.collective) ? own : 0;
  const std::size_t elements = c.count * blocks(c, info.output);
  REQUIRE(at + elements <= output.size());
  for (std::size_t block = 0; block * c.count < elements; ++block) {
    const auto owner = static_cast<int>(block);
    const std::size_t i = block * c.count;
    // Whether it has the elements of the vector `from` that begin at `begin`.
    const auto has = [&](const std::vector<std::int32_t>& from, std::size_t begin) {
      return std::memcmp(output.data() + at + i, from.data() + begin, c.count * sizeof(std::int32_t)) == 0;
    };
    const auto value_of = [&](int r, std::size_t begin) { return has(vectors().of(r, begin + c.count), begin); };
    const auto sum_of = [&](int ranks, std::size_t begin) {
      return has(vectors().sum_of(ranks, begin + c.count), begin);
    };
    bool right = false;
    switch (info.origin) {
      case Origin::kAllCombined: right = sum_of(c.ranks, first + i); break;
      case Origin::kRoot: right = value_of(c.root, first + i); break;
      case Origin::kOwner: right = value_of(owner, 0); break;
      case Origin::kPeer: right = value_of(owner, own); break;
      case Origin::kPrefix: right = sum_of(rank + 1, i); break;
      case Origin::kPrefixBefore: right = sum_of(rank, i); break;
    }
    if (!right) return false;
  }
  return true;
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
  const std::int32_t* const values = vectors().of(rank, in).data();
  d->input.assign(values, values + in);
  d->output.assign(runs_in_place(c) ? std::max(in, out) : out, kGuard);
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
  const schedule::Schedule& schedule = op->plan->schedule;
  const std::size_t parts = schedule.shape.chunks_per_block();
  d->scratch.assign((schedule.scratch_chunks + parts - 1) / parts * c.count, kGuard);
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
    const bool scattered = runs_in_place(c) && gets_own_block(c.entry->collective);
    const std::size_t at = scattered ? static_cast<std::size_t>(r) * c.count : 0;
    INFO("rank " << r);
    REQUIRE(is_expected(c, r, d.output, at));
    const std::vector<std::int32_t>& given = vectors().of(r, d.input.size());
    REQUIRE(std::equal(d.input.begin(), d.input.end(), given.begin()));
  }
}

}  // namespace tutti::internal::test
