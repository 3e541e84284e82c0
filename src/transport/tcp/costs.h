#pragma once

#include "base/message_costs.h"

namespace tutti::internal::transport::tcp {

TransportCosts costs();

}  // namespace tutti::internal::transport::tcp
