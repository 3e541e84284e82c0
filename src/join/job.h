// One rank's part of a job.
#pragma once

#include <memory>
#include <string>

#include "base/descriptors.h"
#include "control/control_tree.h"
#include "join/unique_id.h"

namespace tutti::internal {

struct Job {
  int rank = 0;
  int ranks = 1;
  Secret secret{};
  std::string decided;                // tell_decided() of rank 0's settings; unused by threads that were made together
  std::string address;                // the address of this host that the others can probably reach best, with any port
  std::unique_ptr<ControlTree> tree;  // null only for ranks == 1
  DescriptorReservation descriptors;  // empty for ranks that are threads of one process
};

}  // namespace tutti::internal
