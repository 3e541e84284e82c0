// Variables that people who come from NCCL have set. Tutti does not read them, and says so once.
//
// Threads: any; nothing here has state.
#pragma once

#include <string>
#include <string_view>

namespace tutti::internal {

// Tutti's setting that does the same as this variable of NCCL; empty: there is none.
std::string_view counterpart_of(std::string_view nccl_variable);

// A sentence about those that the environment sets, with tutti's settings for them; empty: it sets none. Not of those
// that only builds and containers use (NCCL_VERSION, NCCL_HOME), nor of nccl-tests' (NCCL_TESTS_...).
std::string ignored_nccl_variables();

}  // namespace tutti::internal
