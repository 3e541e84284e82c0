// One rank's part of the control tree: connections to its parent and its children.
//
// Threads: the one that joins.
#pragma once

#include "base/config.h"
#include "base/status.h"
#include "join/job.h"
#include "join/root_service.h"
#include "os/clock.h"
#include "os/unique_fd.h"

namespace tutti::internal {

inline constexpr std::size_t kMaxPlacementBytes = 64 << 10;

// A rank that joins.
struct Member {
  int rank;
  int ranks;
  const Settings& settings;
  Deadline deadline;
  // Called while it waits for the others to join, at least every kFailureCheckMs; if not ok, that is the result on all
  // ranks.
  ControlTree::GivesUp gives_up{};
};

// Makes job->tree (null for a single rank). On failure, it sends the reason to connected neighbours and to the root.
// `listener`: for children, and later for ranks that have lost their parents; `registration` has its addresses. `root`:
// the connection that carried the placement; it is kept until this rank's part is connected.
Status connect_tree(const Member& member, const Secret& secret, Encryption encryption, const Registration& registration,
                    const Placement& placement, UniqueFd listener, net::ByteStream root, Job* job);

}  // namespace tutti::internal
