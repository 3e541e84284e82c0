#include "specs.h"

#include <algorithm>
#include <initializer_list>

namespace tutti::internal::test {
namespace {

// All collectives with data.
std::vector<Collective> all_moving() {
  std::vector<Collective> moving;
  for (const CollectiveInfo& info : kUniformTable) {
    if (info.has_data) moving.push_back(info.collective);
  }
  return moving;
}

bool is_defined(Collective c, DataType type, ReduceOp op) {
  return supports(type, op) && (op != ReduceOp::kAvg || !combines_prefixes(c));
}

// Kinds and alignments of memory, in turn, so that every list has every kind.
void vary(std::size_t turn, Spec* spec) {
  constexpr std::size_t kMisalign[] = {0, 1, 4, 2, 0, 8, 3};
  spec->misalign = kMisalign[turn % std::size(kMisalign)];
  spec->registered = turn % 3 == 1;
}

// The count of one block so that the whole vector has about `elements`.
std::size_t block_count(Collective c, std::size_t elements, int ranks) {
  return elements / blocks_of(c, ranks);
}

}  // namespace

std::vector<Spec> every_type(int ranks, std::size_t large) {
  const auto n = static_cast<std::size_t>(ranks);
  std::vector<Spec> specs;
  for (const Collective c : all_moving()) {
    for (int type = 0; type < kDataTypes; ++type) {
      for (int op = 0; op < (reduces(c) ? kReduceOps : 1); ++op) {
        if (!is_defined(c, static_cast<DataType>(type), static_cast<ReduceOp>(op))) continue;
        for (const std::size_t count : {std::size_t{0}, std::size_t{1}, n - 1, n + 2, large}) {
          Spec s;
          s.collective = c;
          s.type = static_cast<DataType>(type);
          s.op = static_cast<ReduceOp>(op);
          s.count = count;
          s.root = has_root(c) ? (type + op) % ranks : 0;
          s.in_place = specs.size() % 2 == 1;
          vary(specs.size(), &s);
          specs.push_back(s);
        }
      }
    }
    specs.push_back({.collective = Collective::kBarrier});
  }
  return specs;
}

std::vector<Spec> every_size(int ranks, std::size_t most_bytes) {
  std::vector<Spec> specs;
  for (const std::size_t kib : {4, 32, 64, 128, 256, 513, 1024, 3000}) {
    const std::size_t elements = kib * 1024 / sizeof(float);
    if (elements * sizeof(float) > most_bytes) continue;
    for (const Collective c : all_moving()) {
      for (const int beside : {-1, 0, 1}) {
        for (const bool in_place : {false, true}) {
          Spec s;
          s.collective = c;
          s.count = block_count(c, elements, ranks) + static_cast<std::size_t>(beside + 1) - 1;
          s.root = has_root(c) ? ranks - 1 : 0;
          s.in_place = in_place;
          vary(specs.size(), &s);
          specs.push_back(s);
          if (kib > 600) break;
        }
      }
    }
  }
  return specs;
}

std::vector<Spec> every_root(int ranks) {
  std::vector<Spec> specs;
  for (const Collective c : all_moving()) {
    for (int root = 0; root < (has_root(c) ? ranks : 0); ++root) {
      for (const std::size_t count : {1, 1000, 20'001}) {
        Spec s;
        s.collective = c;
        s.root = root;
        s.count = std::max<std::size_t>(1, block_count(c, count, ranks));
        s.in_place = (count + static_cast<std::size_t>(root)) % 2 == 0;
        vary(specs.size(), &s);
        specs.push_back(s);
      }
    }
  }
  return specs;
}

std::vector<Spec> sample(const std::vector<Spec>& specs, std::size_t stride) {
  std::vector<Spec> some;
  for (std::size_t i = 0; i < specs.size(); i += stride) some.push_back(specs[i]);
  return some;
}

std::vector<Spec> some_of(Collective collective, int ranks) {
  std::vector<Spec> specs;
  if (collective == Collective::kBarrier) return {{.collective = collective}, {.collective = collective}};
  for (const std::size_t count : {1, 5, 1023, 9000, 70'001}) {
    for (const bool in_place : {false, true}) {
      Spec s;
      s.collective = collective;
      s.type = in_place ? DataType::kInt32 : DataType::kBfloat16;
      s.op = specs.size() % 4 == 2 && !combines_prefixes(collective) ? ReduceOp::kAvg : ReduceOp::kSum;
      s.count = block_count(collective, count, ranks) + 1;
      s.root = has_root(collective) ? static_cast<int>(count) % ranks : 0;
      s.in_place = in_place;
      vary(specs.size(), &s);
      specs.push_back(s);
    }
  }
  return specs;
}

}  // namespace tutti::internal::test
