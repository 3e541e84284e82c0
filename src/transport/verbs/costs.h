#pragma once

#include "base/message_costs.h"

namespace tutti::internal::transport::verbs {

TransportCosts costs();

}  // namespace tutti::internal::transport::verbs
