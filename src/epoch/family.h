// What the communicators of one rank have in common that come from one by splits, and what one of them is made with.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "base/config.h"
#include "transport/connections/listeners.h"

namespace tutti::internal {

// A communicator to be, as one of its ranks knows it.
struct SplitGroup {
  std::uint64_t id = 0;
  std::vector<int> members;  // ranks of the communicator that is split, by rank of the new one
  Settings settings;         // this rank's
};

// Threads: any.
class Family {
 public:
  // `rank`: in the first of them.
  explicit Family(int rank) : rank_(static_cast<std::uint64_t>(rank)) {}
  // Drawn by no other rank of the job, nor a second time: a rank's numbers begin with its rank in the first
  // communicator, which has 20 bits, and are counted behind it, in 44. The first communicator is 0.
  std::uint64_t next_id() {
    return rank_ << Listeners::kCountBits | (drawn_.fetch_add(1, std::memory_order_relaxed) + 1);
  }

 private:
  const std::uint64_t rank_;
  std::atomic<std::uint64_t> drawn_{0};
};

}  // namespace tutti::internal
