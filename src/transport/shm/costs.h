#pragma once

#include "base/message_costs.h"

namespace tutti::internal::transport::shm {

TransportCosts costs();

}  // namespace tutti::internal::transport::shm
