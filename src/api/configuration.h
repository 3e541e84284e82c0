// Reads tuttiConfig_t.
#pragma once

#include "base/config.h"
#include "base/status.h"
#include "tutti/tutti.h"

namespace tutti::internal::api {

// The environment's settings, overridden by the caller's. Null: no override. Copies everything from *config.
Result<Settings> settings_from(const tuttiConfig_t* config);

// `settings`, overridden by the caller's. REQUIRES: config is not null.
Result<Settings> changed_settings(Settings settings, const tuttiConfig_t* config);

}  // namespace tutti::internal::api
