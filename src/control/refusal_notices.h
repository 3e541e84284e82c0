// The refusals of a communicator's members, as sent to all ranks.
//
// Threads: the tree's only, except writes to CommShared.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "control/comm_members.h"
#include "control/comm_shared.h"
#include "control/control_tree.h"
#include "control/neighbours.h"

namespace tutti::internal::control {

class RefusalNotices {
 public:
  // All outlive it.
  RefusalNotices(const CommMembers& members, CommShared* shared, Neighbours* neighbours)
      : members_(members), shared_(*shared), neighbours_(*neighbours) {}

  // Sends this rank's own. `tells`: the other ranks still listen.
  void tell(Refusal refusal, bool tells);
  // `refusal.rank`: in the job.
  void hear(Refusal refusal, const std::string& frame, const Neighbour* from);
  // The frame of each rank's last refusal, by rank.
  struct Heard {
    std::uint32_t serial = 0;
    std::string frame;
  };
  [[nodiscard]] const std::map<int, Heard>& last() const { return last_; }

 private:
  const CommMembers& members_;
  CommShared& shared_;
  Neighbours& neighbours_;
  std::map<int, Heard> last_;  // including this rank's
};

}  // namespace tutti::internal::control
