// The fingerprint that travels with every piece of a lane.
#pragma once

#include <cstdint>

namespace tutti::internal::transport {

// Which operation a piece belongs to, and how its bytes are ordered; 20 bytes, so that it travels beside small
// payloads. Compared on every piece of a lane, so that ranks whose calls differ get an error that names both sides.
// Only executor/fingerprint.h knows the fields of `call` and `root`.
struct Fingerprint {
  std::uint32_t sequence = 0;   // the communicator's operation number, modulo 2^32
  std::uint32_t call = 0;       // collective, datatype, operator, plan
  std::uint32_t root = 0;       // root, history
  std::uint32_t count_low = 0;  // elements
  std::uint32_t count_high = 0;
  // Compares all words with one branch, because this is on the path of every message.
  constexpr bool operator==(const Fingerprint& other) const {
    return ((sequence ^ other.sequence) | (call ^ other.call) | (root ^ other.root) | (count_low ^ other.count_low) |
            (count_high ^ other.count_high)) == 0;
  }
};
static_assert(sizeof(Fingerprint) == 20 && alignof(Fingerprint) == 4);

}  // namespace tutti::internal::transport
