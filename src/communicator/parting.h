// How a rank leaves a communicator in order.
#pragma once

#include "epoch/epoch.h"

namespace tutti::internal {

// Tells the other ranks what this one has called in all, and hears the same of them: ranks that have called different
// things find that out (ControlTree::finish()). Waits a short time for them to come here too, unless this process
// serves them by the same thread. After Failures::watch(); before the tree leaves.
void part(const Epoch& epoch);

}  // namespace tutti::internal
