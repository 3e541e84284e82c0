// Bytes as text.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace tutti::internal {

// Two lower-case digits for each.
inline std::string to_hex(std::span<const std::uint8_t> bytes) {
  constexpr const char* kDigits = "0123456789abcdef";
  std::string hex;
  for (const std::uint8_t byte : bytes) {
    hex += kDigits[byte >> 4];
    hex += kDigits[byte & 15];
  }
  return hex;
}

}  // namespace tutti::internal
