#include "api/varying_calls.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/collectives.h"

namespace tutti::internal::api {
namespace {

// A range of bytes in memory.
struct Bytes {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
  [[nodiscard]] bool empty() const { return begin == end; }
};

// A buffer of blocks, or of only this rank's block.
struct Blocks {
  Blocks(const void* buffer, const BlockCounts& blocks, std::size_t own, std::size_t bytes, int count)
      : base(reinterpret_cast<std::uintptr_t>(buffer)),
        counts(blocks),
        own_count(own),
        element_bytes(bytes),
        ranks(static_cast<std::size_t>(count)) {}
  std::uintptr_t base;
  BlockCounts counts;  // none: the own block
  std::size_t own_count;
  std::size_t element_bytes;
  std::size_t ranks;

  [[nodiscard]] bool is_own() const { return counts.counts == nullptr; }
  // Calls f(block, index) for each block; without displacements, a block follows the previous one.
  template <class F>
  void for_each(F f) const {
    if (is_own()) return f(Bytes{base, base + own_count * element_bytes}, std::size_t{0});
    std::size_t packed = 0;
    for (std::size_t i = 0; i < ranks; ++i) {
      const std::size_t at = counts.displacements != nullptr ? counts.displacements[i] : packed;
      packed += counts.counts[i];
      const std::uintptr_t begin = base + at * element_bytes;
      f(Bytes{begin, begin + counts.counts[i] * element_bytes}, i);
    }
  }
  [[nodiscard]] Bytes hull() const {
    Bytes all{UINTPTR_MAX, 0};
    for_each([&](const Bytes& b, std::size_t) {
      if (!b.empty()) all = {std::min(all.begin, b.begin), std::max(all.end, b.end)};
    });
    return all.end == 0 ? Bytes() : all;
  }
  // In the order of memory, without empty ones.
  [[nodiscard]] std::vector<Bytes> sorted() const {
    std::vector<Bytes> list;
    for_each([&](const Bytes& b, std::size_t) {
      if (!b.empty()) list.push_back(b);
    });
    std::sort(list.begin(), list.end(), [](const Bytes& a, const Bytes& b) { return a.begin < b.begin; });
    return list;
  }
};

Status check_counts(const BlockCounts& blocks, int ranks, std::size_t element_bytes, const char* name) {
  if (blocks.counts == nullptr) return Status::invalid_argument(fmt::format("{}counts is NULL", name));
  // Limits sums to half of the address space, so that no address wraps.
  const std::size_t limit = SIZE_MAX / 2 / element_bytes;
  std::size_t packed = 0;
  for (std::size_t i = 0; i < static_cast<std::size_t>(ranks); ++i) {
    const std::size_t count = blocks.counts[i];
    const std::size_t at = blocks.displacements != nullptr ? blocks.displacements[i] : packed;
    if (count > limit || at > limit - count || packed > limit - count) {
      return Status::invalid_argument(fmt::format("{}counts[{}] overflows the address space", name, i));
    }
    packed += count;
  }
  return {};
}

// Received blocks must not overlap.
Status check_apart(const Blocks& blocks) {
  bool rising = true;
  std::uintptr_t end = 0;
  blocks.for_each([&](const Bytes& b, std::size_t) {
    if (b.empty()) return;
    rising = rising && b.begin >= end;
    end = b.end;
  });
  if (rising) return {};
  const std::vector<Bytes> list = blocks.sorted();
  for (std::size_t i = 1; i < list.size(); ++i) {
    if (list[i].begin < list[i - 1].end) {
      return Status::invalid_argument("blocks of recvbuff overlap: rdispls or recvcounts are wrong");
    }
  }
  return {};
}

bool overlap(const Blocks& a, const Blocks& b) {
  const Bytes x = a.hull();
  const Bytes y = b.hull();
  if (x.empty() || y.empty() || x.begin >= y.end || y.begin >= x.end) return false;
  // Blocks of one buffer may be in gaps of the other.
  const std::vector<Bytes> list = b.sorted();
  bool any = false;
  a.for_each([&](const Bytes& block, std::size_t) {
    if (block.empty()) return;
    const auto behind = std::lower_bound(list.begin(), list.end(), block.end,
                                         [](const Bytes& l, std::uintptr_t e) { return l.begin < e; });
    any |= std::any_of(list.begin(), behind, [&](const Bytes& l) { return l.end > block.begin; });
  });
  return any;
}

std::size_t count_of_rank(const BlockCounts& counts, int rank) {
  return counts.counts[static_cast<std::size_t>(rank)];
}

bool same(const BlockCounts& a, const BlockCounts& b, std::size_t ranks) {
  const auto displacement = [](const BlockCounts& c, std::size_t i, std::size_t packed) {
    return c.displacements != nullptr ? c.displacements[i] : packed;
  };
  std::size_t packed = 0;
  for (std::size_t i = 0; i < ranks; ++i) {
    if (a.counts[i] != b.counts[i]) return false;
    if (a.counts[i] != 0 && displacement(a, i, packed) != displacement(b, i, packed)) return false;
    packed += a.counts[i];
  }
  return true;
}

// The rank's block in a buffer with blocks.
Bytes own_block(const Blocks& blocks, int rank) {
  Bytes own;
  blocks.for_each([&](const Bytes& b, std::size_t i) {
    if (i == static_cast<std::size_t>(rank)) own = b;
  });
  return own;
}

// The in-place rule: a separate block is at its position among the blocks; an all-to-all has one buffer, with equal
// counts and displacements.
bool is_in_place(const Blocks& send, const Blocks& recv, int rank) {
  if (!send.is_own() && !recv.is_own()) return send.base == recv.base && same(send.counts, recv.counts, send.ranks);
  const Blocks& own = send.is_own() ? send : recv;
  return own.base == own_block(send.is_own() ? recv : send, rank).begin;
}

// The call passes the count of this rank's own block twice.
Status check_own_count(const Call& call, const VaryingCounts& v, int rank) {
  const auto compare = [&](const char* what, std::size_t a, const char* other, const BlockCounts& counts) {
    const std::size_t b = count_of_rank(counts, rank);
    if (a == b) return Status();
    return Status::invalid_argument(fmt::format("{} is {}, but {}[{}] is {}", what, a, other, rank, b));
  };
  if (v.send.counts != nullptr && v.recv.counts != nullptr) {
    return compare("the count that this rank sends itself", count_of_rank(v.send, rank), "recvcounts", v.recv);
  }
  if (v.recv.counts != nullptr) return compare("sendcount", call.count, "recvcounts", v.recv);
  // A reduce-scatter passes the count of its own block only once.
  if (v.send.counts != nullptr && !combines(call.collective))
    return compare("recvcount", call.count, "sendcounts", v.send);
  return {};
}

}  // namespace

Status check_varying(const Call& call, int ranks, int rank) {
  const CollectiveInfo& info = info_of(call.collective);
  const VaryingCounts v = known_counts(call, rank);
  const bool sends = has_any(info.input, rank, call.root);
  const bool receives = has_any(info.output, rank, call.root);
  const auto check = [&](Holds holds, const BlockCounts& counts, const char* name) {
    return holds == Holds::kOwnBlock ? Status() : check_counts(counts, ranks, element_bytes_of(call), name);
  };
  if (sends) {
    if (Status s = check(info.input, v.send, combines(call.collective) ? "recv" : "send"); !s.is_ok()) return s;
  }
  if (receives) {
    if (Status s = check(info.output, v.recv, "recv"); !s.is_ok()) return s;
  }
  if (Status s = check_own_count(call, v, rank); !s.is_ok()) return s;
  const std::size_t own = combines(call.collective) ? count_of_rank(v.send, rank) : call.count;
  const Blocks send(call.send, v.send, own, element_bytes_of(call), ranks);
  const Blocks recv(call.recv, v.recv, own, element_bytes_of(call), ranks);
  const auto is_missing = [](const void* base, const Blocks& b) { return base == nullptr && !b.hull().empty(); };
  if (sends && is_missing(call.send, send)) return Status::invalid_argument("sendbuff is NULL");
  if (receives && is_missing(call.recv, recv)) return Status::invalid_argument("recvbuff is NULL");
  if (receives) {
    if (Status s = check_apart(recv); !s.is_ok()) return s;
  }
  if (sends && receives && overlap(send, recv) && !is_in_place(send, recv, rank)) {
    return Status::invalid_argument("sendbuff and recvbuff overlap, but not as an in-place call does");
  }
  return {};
}

}  // namespace tutti::internal::api
