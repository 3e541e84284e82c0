// One send or receive.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "base/status.h"
#include "base/types.h"

namespace tutti::internal {

// The caller (api/) has checked the arguments.
struct Transfer {
  bool sends = false;
  void* buffer = nullptr;  // only read by a send
  std::size_t count = 0;
  DataType type = DataType::kUint8;
  int peer = 0;     // may be the rank itself
  Opaque opaque{};  // the datatype, if it is user-defined
};

inline std::size_t bytes_of(const Transfer& transfer) {
  return transfer.count * size_of(transfer.type, transfer.opaque);
}

// "send(count 4, float, to rank 3)".
std::string describe(const Transfer& transfer);

// An error if the transfers of a rank to itself do not match: each send needs its receive among them, in the same order
// and with the same bytes.
Status check_own(std::span<const Transfer> transfers, int rank);

}  // namespace tutti::internal
