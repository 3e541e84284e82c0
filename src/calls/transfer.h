// One send or receive.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "base/status.h"
#include "base/types.h"

namespace tutti::internal {

// Arguments checked by the caller (api/).
struct Transfer {
  bool sends = false;
  void* buffer = nullptr;  // only read by a send
  std::size_t count = 0;
  DataType type = DataType::kUint8;
  int peer = 0;     // may be the rank itself
  Opaque opaque{};  // what `type` is, if it is not built in
};

// "send(count 4, float, to rank 3)".
std::string describe(const Transfer& transfer);

// What is wrong with the transfers of a rank to itself: each send needs its receive among them, in order and of the
// same bytes.
Status check_own(std::span<const Transfer> transfers, int rank);

}  // namespace tutti::internal
