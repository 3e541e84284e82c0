// NCCL variables that are still set. tutti does not read them, and logs that once.
//
// Threads: any; nothing here has state.
#pragma once

#include <string>
#include <string_view>

namespace tutti::internal {

// The setting of tutti that corresponds to this NCCL variable; empty: there is none.
std::string_view counterpart_of(std::string_view nccl_variable);

// A sentence about the NCCL variables that the environment sets, with tutti's settings for them; empty: none. It omits
// variables of builds and containers (NCCL_VERSION, NCCL_HOME) and of nccl-tests (NCCL_TESTS_...).
std::string ignored_nccl_variables();

}  // namespace tutti::internal
