// Memory ranges that the program registers explicitly, as NCCL programs do. Operations do not read this table: they
// register memory when they use it (memory/registration.h).
#pragma once

#include <cstddef>

namespace tutti::internal {

struct RegisteredRange {
  const void* begin = nullptr;
  std::size_t bytes = 0;
};

}  // namespace tutti::internal
