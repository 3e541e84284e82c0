// The format of costs in a tuning file.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "base/json_file.h"
#include "topology/routes.h"

namespace tutti::internal::selection {

// Only for ranks on hosts; the file has no costs for devices.
nlohmann::ordered_json json_of(const topology::MachineCosts& costs);
topology::MachineCosts read_costs(JsonReading& reading, const JsonValue& object);

}  // namespace tutti::internal::selection
