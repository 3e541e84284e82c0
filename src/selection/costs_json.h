// Costs of messages and of bytes as a tuning file has them.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "base/json_file.h"
#include "topology/routes.h"

namespace tutti::internal::selection {

// Of hosts' ranks; devices have none of their own in it.
nlohmann::ordered_json json_of(const topology::MachineCosts& costs);
topology::MachineCosts read_costs(JsonReading& reading, const JsonValue& object);

}  // namespace tutti::internal::selection
