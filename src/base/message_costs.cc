#include "base/message_costs.h"

#include <cmath>
#include <cstddef>

namespace tutti::internal {

double log2_by_parts(double number) {
  int exponent = 0;
  const double fraction = std::frexp(number, &exponent);
  return exponent - 2 + 2 * fraction;
}

double PerByte::at(double bytes) const {
  if (bytes <= kBytes.front()) return us_per_byte_.front();
  for (std::size_t i = 1; i < kBytes.size(); ++i) {
    if (bytes > kBytes[i]) continue;
    const double share = log2_by_parts(bytes / kBytes[i - 1]) / log2_by_parts(kBytes[i] / kBytes[i - 1]);
    return us_per_byte_[i - 1] + share * (us_per_byte_[i] - us_per_byte_[i - 1]);
  }
  return us_per_byte_.back();
}

}  // namespace tutti::internal
