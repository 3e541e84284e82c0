#include "communicator/descriptions.h"

#include <new>

namespace tutti::internal {

std::string describe(const Call& call, const transport::Fingerprint& fingerprint) noexcept {
  try {
    return executor::describe(fingerprint);
  } catch (const std::bad_alloc&) {
    return name_of(call.collective);  // fits the string itself
  }
}

std::string describe(const Coalesced& coalesced, const transport::Fingerprint& first) noexcept {
  try {
    return executor::describe(first) + " and others of its group";
  } catch (const std::bad_alloc&) {
    return name_of(coalesced.calls().front().collective);  // fits the string itself
  }
}

std::string describe(std::span<const Transfer> transfers) noexcept {
  try {
    return describe(transfers.front()) + (transfers.size() > 1 ? " and others of its group" : "");
  } catch (const std::bad_alloc&) {
    return transfers.front().sends ? "send" : "recv";  // fits the string itself
  }
}

}  // namespace tutti::internal
