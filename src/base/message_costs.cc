#include "base/message_costs.h"

#include <cmath>
#include <cstddef>

namespace tutti::internal {

double PerByte::at(double bytes) const {
  if (bytes <= kBytes.front()) return us_per_byte_.front();
  for (std::size_t i = 1; i < kBytes.size(); ++i) {
    if (bytes > kBytes[i]) continue;
    const double share = std::log2(bytes / kBytes[i - 1]) / std::log2(kBytes[i] / kBytes[i - 1]);
    return us_per_byte_[i - 1] + share * (us_per_byte_[i] - us_per_byte_[i - 1]);
  }
  return us_per_byte_.back();
}

}  // namespace tutti::internal
