// How a rank leaves a communicator in an orderly way.
#pragma once

#include "epoch/epoch.h"

namespace tutti::internal {

// Exchanges totals of all calls with the other ranks, so that ranks detect if they have called different operations
// (ControlTree::finish()). Waits a short time for the others to get here, unless the same thread of this process serves
// them. Called after Failures::watch(), before the tree leaves.
void part(const Epoch& epoch);

}  // namespace tutti::internal
