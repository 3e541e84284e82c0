// tuttiConfig_t, read.
#pragma once

#include "base/config.h"
#include "base/status.h"
#include "tutti/tutti.h"

namespace tutti::internal::api {

// The environment's settings, and over them what the caller sets. Null: it sets nothing. Keeps nothing of *config.
Result<Settings> settings_from(const tuttiConfig_t* config);

// `settings`, and over them what the caller sets. REQUIRES: config is not null.
Result<Settings> changed_settings(Settings settings, const tuttiConfig_t* config);

}  // namespace tutti::internal::api
