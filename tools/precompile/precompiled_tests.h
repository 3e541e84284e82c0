// The headers that most tests include, compiled once.
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

#include "catch_compat.h"
#include "precompiled_library.h"
