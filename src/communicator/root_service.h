// The root service: the one place that every rank of a job can find. Ranks register; when all have,
// each is told its parent and children in the tree, and the service ends.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/unique_fd.h"
#include "communicator/bootstrap.h"

namespace tutti {

inline constexpr int kTreeArity = 4;
inline constexpr int kMaxRanks = 1 << 20;

// The tree is the usual one of a heap: rank 0 on top.
inline int tree_parent(int rank) {
  return (rank - 1) / kTreeArity;
}  // REQUIRES: rank > 0
std::vector<int> tree_children(int rank, int ranks);
int levels_below(int rank, int ranks);

// What a rank tells the root.
struct Registration {
  std::int32_t rank = -1;
  std::int32_t ranks = 0;
  std::int32_t pid = 0;
  std::int64_t patience_ms = 0;  // how long the rank will wait for the answer
  std::string host;
  std::vector<std::string> addresses;     // of its tree listener
  [[nodiscard]] std::string who() const;  // "rank 3 (host a, pid 77)"
  [[nodiscard]] std::string serialize() const;
  static Result<Registration> parse(const std::string& bytes);
};

// What the root answers. With a failure only `status` counts.
struct Placement {
  Status status;
  std::vector<std::string> parent_addresses;
  std::string parent_who;                 // empty for rank 0
  std::vector<std::string> children_who;  // in the order of tree_children()
  [[nodiscard]] std::string serialize() const;
  static Result<Placement> parse(const std::string& bytes);
};

// Serves a job on `listener` from a thread of its own, which ends when all ranks have been served, at
// the deadline, or some seconds after the job has failed (so that ranks that come late hear why).
Status start_root_service(UniqueFd listener, const Secret& secret, Deadline deadline);

}  // namespace tutti
