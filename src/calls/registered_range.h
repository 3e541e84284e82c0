// Ranges of memory that the program registers by name, as NCCL's programs do. Operations do not look at them: what they
// use is registered when they use it (memory/registration.h).
#pragma once

#include <cstddef>

namespace tutti::internal {

struct RegisteredRange {
  const void* begin = nullptr;
  std::size_t bytes = 0;
};

}  // namespace tutti::internal
