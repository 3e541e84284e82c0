#include "size_value.h"

#include <fmt/core.h>

#include <cctype>
#include <charconv>

namespace tutti::internal::perf {
namespace {

constexpr std::size_t kKibi = 1024;

}  // namespace

std::optional<std::size_t> parse_bytes(const std::string& text) {
  std::size_t value = 0;
  const char* const end = text.data() + text.size();
  auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc()) return std::nullopt;
  double part = 0;
  if (stop != end && *stop == '.') {
    const auto read = std::from_chars(stop, end, part);
    if (read.ec != std::errc()) return std::nullopt;
    stop = read.ptr;
  }
  std::string unit(stop, end);
  for (char& c : unit) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (unit.empty() || unit == "b") return value;
  if (const std::string rest = unit.substr(1); !rest.empty() && rest != "b" && rest != "ib") return std::nullopt;
  int powers = 0;
  switch (unit[0]) {
    case 'k': powers = 1; break;
    case 'm': powers = 2; break;
    case 'g': powers = 3; break;
    case 't': powers = 4; break;
    case 'p': powers = 5; break;
    default: return std::nullopt;
  }
  for (; powers > 0; --powers) {
    if (value > SIZE_MAX / kKibi) return std::nullopt;
    value *= kKibi;
    part *= kKibi;
  }
  return value + static_cast<std::size_t>(part);
}

std::string not_a_size(const std::string& text) {
  return fmt::format("'{}' is not a size such as 8, 4K, 64M or 1G", text);
}

SizeValue::SizeValue() : Validator("SIZE") {
  func_ = [](std::string& text) {
    const std::optional<std::size_t> bytes = parse_bytes(text);
    if (!bytes) return not_a_size(text);
    text = std::to_string(*bytes);
    return std::string();
  };
}

}  // namespace tutti::internal::perf
