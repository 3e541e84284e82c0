// How ranks find each other: through the store that torch.distributed has given the group, and no other port than those
// that tutti takes.
#pragma once

#include <tutti/tutti.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

namespace tutti_torch {

struct RankInGroup {
  int rank = 0;
  int ranks = 1;
};

struct Joined {
  tuttiComm_t comm = nullptr;
  std::string name;  // the same on all ranks, and another in every group and attempt: the prefix of the group's keys
};
// The default group of this process: the other groups share its connections, sockets and threads.
class World {
 public:
  struct Found {
    tuttiComm_t comm = nullptr;
    std::string name;
  };
  // `comm`: the communicator while the group lives, then null.
  static void set(std::string name, int rank, std::function<tuttiComm_t()> comm);
  // Nothing if there is no such group, if there are several, or if `rank` is not this process's rank in it.
  static std::optional<Found> find(int rank);
};

// The communicator of those that come to the store. `timeout`: of the wait for the others, and of every operation.
// Throws what check() throws, and DistBackendError if rank 0 does not come to the store. The store may be one that an
// earlier attempt of the job has used (torchrun's, after a restart). `ranks_in_world`: by rank; empty: this is the
// default group, or has nothing to do with it. Rank 0 of others decides whether the group shares the world's
// connections.
Joined join(c10d::Store& store, const RankInGroup& place, std::chrono::milliseconds timeout,
            const std::vector<int>& ranks_in_world);

struct Pair {
  tuttiComm_t group = nullptr;  // of which it is made
  int first = 0;                // rank of the group, rank 0 of the pair
  int second = 0;
};
// The communicator of two ranks that come to `key`, of which either may come much later, or never: until the other is
// there it waits at the store, and gives up as soon as `gives_up` says why: with that in a std::runtime_error.
// `rank`: in the pair. `device`: tutti's name of the one that its buffers are on; empty: the host.
tuttiComm_t join_pair(c10d::Store& store, const std::string& key, const Pair& pair, int rank,
                      std::chrono::milliseconds timeout, const std::function<std::string()>& gives_up,
                      const std::string& device = {});

}  // namespace tutti_torch
