#pragma once

#include "base/link_costs.h"

namespace tutti::internal::transport::shm {

// `ranks_per_cpu`: on the machine that has most, at least 1; the same on every rank.
LinkCosts costs(double ranks_per_cpu);

}  // namespace tutti::internal::transport::shm
