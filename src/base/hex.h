// Bytes as text.
#pragma once

#include <charconv>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <system_error>

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

// The reverse. False if the text is not two digits for each byte.
inline bool from_hex(std::string_view hex, std::span<std::uint8_t> bytes) {
  if (hex.size() != 2 * bytes.size()) return false;
  for (std::uint8_t& byte : bytes) {
    const char* const end = hex.data() + 2;
    const auto [stop, error] = std::from_chars(hex.data(), end, byte, 16);
    if (error != std::errc{} || stop != end) return false;
    hex.remove_prefix(2);
  }
  return true;
}

}  // namespace tutti::internal
