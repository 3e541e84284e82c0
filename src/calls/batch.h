// The collectives and transfers of one group on one communicator.
#pragma once

#include <memory>
#include <vector>

#include "calls/call.h"
#include "calls/operators.h"
#include "calls/transfer.h"
#include "calls/varying.h"

namespace tutti::internal {

struct Batch {
  std::vector<Call> calls;
  std::vector<Transfer> transfers;
  // Objects that the calls refer to.
  std::vector<std::shared_ptr<const VaryingCopy>> counts;
  std::vector<std::shared_ptr<const CustomOperator>> operators;

  void clear() {
    calls.clear();
    transfers.clear();
    counts.clear();
    operators.clear();
  }
};

}  // namespace tutti::internal
