// The common state of one rank's communicators of a family, and the data for making one of them.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "base/config.h"
#include "transport/connections/listeners.h"

namespace tutti::internal {

// A new communicator, from the view of one of its ranks.
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
  // A unique number in the job: the rank in the first communicator (20 bits), then a count (44 bits). The first
  // communicator is 0.
  std::uint64_t next_id() {
    return rank_ << Listeners::kCountBits | (drawn_.fetch_add(1, std::memory_order_relaxed) + 1);
  }

 private:
  const std::uint64_t rank_;
  std::atomic<std::uint64_t> drawn_{0};
};

}  // namespace tutti::internal
