// The headers of sources that read command lines or JSON, compiled once.
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "precompiled_library.h"
