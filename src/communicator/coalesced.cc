#include "communicator/coalesced.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <vector>

namespace tutti::internal {
namespace {

std::size_t block_bytes(const Call& call) {
  return call.count * element_bytes_of(call);
}
std::size_t vector_bytes(const Call& call, int ranks) {
  return block_bytes(call) * blocks_of(call.collective, ranks);
}

bool is_small(const Call& call, int ranks) {
  return call.count != 0 && has_data(call.collective) && call.varying == nullptr && call.custom == nullptr &&
         vector_bytes(call, ranks) <= Coalesced::kMostCallBytes;
}

bool is_alike(const Call& a, const Call& b) {
  return a.collective == b.collective && a.type == b.type && a.opaque.bytes == b.opaque.bytes && a.root == b.root &&
         (a.op == b.op || !reduces(a.collective));
}

// The plan that the call has when it runs alone, if that plan exists and combines each element in the same way at every
// position of its block.
const executor::Plan* plan_of(const Call& call, const Plans& plans, int ranks) {
  const executor::Plan* const plan = plans.find(call.collective, call.root, vector_bytes(call, ranks));
  const bool alike = plan != nullptr && (!combines(call.collective) || plan->schedule.shape.chunks_per_block() == 1);
  return alike ? plan : nullptr;
}

// Whether the call writes nothing on this rank, because the result is already in place: others may read it at the same
// time.
bool stays_in_place(const Call& call, int rank) {
  if (info_of(call.collective).origin != Origin::kRoot || rank != call.root) return false;
  const std::size_t own = gets_own_block(call.collective) ? static_cast<std::size_t>(rank) * block_bytes(call) : 0;
  return call.recv == static_cast<const std::byte*>(call.send) + own;
}

// For a buffer with blocks of `one_bytes`: each call's part of a block follows those of the calls before it.
template <class Copy>
void for_blocks(std::span<const Call> calls, std::size_t blocks, std::size_t one_bytes, Copy copy) {
  for (std::size_t b = 0; b < blocks; ++b) {
    std::size_t at = b * one_bytes;
    for (const Call& call : calls) {
      const std::size_t n = block_bytes(call);
      copy(call, b * n, at, n);
      at += n;
    }
  }
}

}  // namespace

Coalesced::Coalesced(std::span<const Call> calls, const Plans& plans, int rank, int ranks)
    : calls_(calls.first(1)), rank_(rank), ranks_(ranks) {
  if (calls.size() == 1 || ranks == 1 || !is_small(kind(), ranks)) return;
  plan_ = plan_of(kind(), plans, ranks);
  if (plan_ == nullptr) return;
  std::size_t n = 0;
  for (std::size_t bytes = 0; n < calls.size(); ++n) {
    const Call& call = calls[n];
    if (!is_alike(kind(), call) || !is_small(call, ranks) || plan_of(call, plans, ranks) != plan_) break;
    bytes += vector_bytes(call, ranks);
    if (bytes > kMostBytes) break;
    count_ += call.count;
  }
  calls_ = calls.first(n);
  block_bytes_ = count_ * element_bytes_of(kind());
}

std::uint64_t Coalesced::hash_of_counts() const {
  std::uint64_t hash = calls_.size();
  for (const Call& call : calls_) {
    hash = (hash ^ call.count) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 32;
  }
  return hash;
}

Call Coalesced::one(std::byte* memory) const {
  Call call = kind();
  call.send = memory;
  call.recv = memory + bytes();
  call.count = count_;
  return call;
}

void Coalesced::pack(std::byte* memory) const {
  const Holds input = info_of(kind().collective).input;
  if (!has_any(input, rank_, kind().root)) return;
  for_blocks(calls_, blocks_in(input, kind().collective, ranks_), block_bytes_,
             [&](const Call& call, std::size_t in_call, std::size_t in_one, std::size_t n) {
               std::memcpy(memory + in_one, static_cast<const std::byte*>(call.send) + in_call, n);
             });
}

void Coalesced::unpack(const std::byte* memory) const {
  const CollectiveInfo& info = info_of(kind().collective);
  if (!has_any(info.output, rank_, kind().root)) return;
  for_blocks(calls_, blocks_in(info.output, kind().collective, ranks_), block_bytes_,
             [&](const Call& call, std::size_t in_call, std::size_t in_one, std::size_t n) {
               if (stays_in_place(call, rank_)) return;
               std::memcpy(static_cast<std::byte*>(call.recv) + in_call, memory + bytes() + in_one, n);
             });
}

namespace {

struct Use {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
  std::size_t call = 0;
  bool writes = false;
};

// Of all uses added, the one that ends last, and the one that ends last among those of other calls.
class Latest {
 public:
  void add(const Use& use) {
    if (last_ == nullptr || use.end > last_->end) {
      if (last_ != nullptr && last_->call != use.call) other_ = last_;
      last_ = &use;
    } else if (use.call != last_->call && (other_ == nullptr || use.end > other_->end)) {
      other_ = &use;
    }
  }
  // A use of another call that overlaps `use`, which begins no earlier than those added; null if there is none.
  [[nodiscard]] const Use* reaching(const Use& use) const {
    const Use* const found = last_ != nullptr && last_->call == use.call ? other_ : last_;
    return found != nullptr && found->end > use.begin ? found : nullptr;
  }

 private:
  const Use* last_ = nullptr;
  const Use* other_ = nullptr;
};

// Sorted by begin. The inputs of calls are most often in that order already, and so are the outputs.
std::vector<Use> uses_of(std::span<const Call> calls, int rank, int ranks) {
  std::vector<Use> reads;
  std::vector<Use> writes;
  reads.reserve(calls.size());
  writes.reserve(calls.size());
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const Call& call = calls[i];
    if (!has_data(call.collective) || call.varying != nullptr || call.count == 0) continue;
    const auto add = [&](std::vector<Use>* uses, const void* base, Holds holds) {
      const auto begin = reinterpret_cast<std::uintptr_t>(base);
      if (has_any(holds, rank, call.root))
        uses->push_back(
            {begin, begin + blocks_in(holds, call.collective, ranks) * block_bytes(call), i, uses == &writes});
    };
    add(&reads, call.send, info_of(call.collective).input);
    if (!stays_in_place(call, rank)) add(&writes, call.recv, info_of(call.collective).output);
  }
  const auto before = [](const Use& a, const Use& b) { return a.begin < b.begin; };
  for (std::vector<Use>* uses : {&reads, &writes}) {
    if (!std::is_sorted(uses->begin(), uses->end(), before)) std::sort(uses->begin(), uses->end(), before);
  }
  std::vector<Use> all(reads.size() + writes.size());
  std::merge(reads.begin(), reads.end(), writes.begin(), writes.end(), all.begin(), before);
  return all;
}

}  // namespace

Status check_apart(std::span<const Call> calls, int rank, int ranks) {
  if (calls.size() < 2) return {};
  Latest any;
  Latest written;
  const std::vector<Use> uses = uses_of(calls, rank, ranks);
  for (const Use& use : uses) {
    const Use* const other = use.writes ? any.reaching(use) : written.reaching(use);
    if (other != nullptr) {
      const Use& writer = use.writes ? use : *other;
      const Use& user = use.writes ? *other : use;
      return Status::invalid_argument(fmt::format(
          "{} and {}, collectives {} and {} of the communicator in this group, may run together, but the one "
          "writes memory that the other uses",
          name_of(calls[writer.call].collective), name_of(calls[user.call].collective), writer.call + 1,
          user.call + 1));
    }
    any.add(use);
    if (use.writes) written.add(use);
  }
  return {};
}

}  // namespace tutti::internal
