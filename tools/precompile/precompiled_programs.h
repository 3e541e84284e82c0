// What the sources that read command lines or JSON include, compiled once.
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "precompiled_library.h"
