#include "specs.h"

#include <algorithm>
#include <initializer_list>

namespace tutti::internal::test {
namespace {

constexpr std::initializer_list<Collective> kMoving = {Collective::kAllReduce, Collective::kReduceScatter,
                                                       Collective::kAllGather, Collective::kBroadcast,
                                                       Collective::kReduce};

// Where and how memory lies, in turn, so that every list meets every kind.
void vary(std::size_t turn, Spec* spec) {
  constexpr std::size_t kMisalign[] = {0, 1, 4, 2, 0, 8, 3};
  spec->misalign = kMisalign[turn % std::size(kMisalign)];
  spec->registered = turn % 3 == 1;
}

// The count of one block so that the whole vector has about `elements`.
std::size_t block_count(Collective c, std::size_t elements, int ranks) {
  const bool by_rank = c == Collective::kReduceScatter || c == Collective::kAllGather;
  return by_rank ? elements / static_cast<std::size_t>(ranks) : elements;
}

}  // namespace

std::vector<Spec> every_type(int ranks, std::size_t large) {
  const auto n = static_cast<std::size_t>(ranks);
  std::vector<Spec> specs;
  for (const Collective c : kMoving) {
    for (int type = 0; type < kDataTypes; ++type) {
      for (int op = 0; op < (reduces(c) ? kReduceOps : 1); ++op) {
        if (!supports(static_cast<DataType>(type), static_cast<ReduceOp>(op))) continue;
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
    for (const Collective c : kMoving) {
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
  for (const Collective c : {Collective::kBroadcast, Collective::kReduce}) {
    for (int root = 0; root < ranks; ++root) {
      for (const std::size_t count : {1, 1000, 20'001}) {
        Spec s;
        s.collective = c;
        s.root = root;
        s.count = count;
        s.in_place = (count + static_cast<std::size_t>(root)) % 2 == 0;
        vary(specs.size(), &s);
        specs.push_back(s);
      }
    }
  }
  return specs;
}

std::vector<Spec> some_of(Collective collective, int ranks) {
  std::vector<Spec> specs;
  if (collective == Collective::kBarrier) return {{.collective = collective}, {.collective = collective}};
  for (const std::size_t count : {1, 5, 1023, 9000, 70'001}) {
    for (const bool in_place : {false, true}) {
      Spec s;
      s.collective = collective;
      s.type = in_place ? DataType::kInt32 : DataType::kBfloat16;
      s.op = specs.size() % 4 == 2 ? ReduceOp::kAvg : ReduceOp::kSum;
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
