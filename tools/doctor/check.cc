#include "check.h"

#include <array>
#include <cstdio>

namespace tutti::internal::tools {

std::string size_text(std::uint64_t bytes) {
  constexpr std::array kUnits = {"KiB", "MiB", "GiB", "TiB"};
  double amount = static_cast<double>(bytes) / 1024;
  std::size_t unit = 0;
  while (amount >= 1024 && unit + 1 < kUnits.size()) {
    amount /= 1024;
    ++unit;
  }
  char text[32];
  std::snprintf(text, sizeof text, "%.4g %s", amount, kUnits.at(unit));
  return text;
}

}  // namespace tutti::internal::tools
