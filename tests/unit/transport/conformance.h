// Requirements for every transport, checked on pairs of connected links that a factory makes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "transport/transport.h"

namespace tutti::internal::transport::conformance {

struct Pair {
  std::shared_ptr<void> owner;  // objects that the links need
  std::unique_ptr<Link> a;
  std::unique_ptr<Link> b;
  // The descriptor that wakes a's rank if a->wait_fds() is empty.
  int wake_a = -1;
};

struct Factory {
  std::string name;
  std::function<Pair(std::uint64_t seed)> make;
  // False for a transport that does not notice the destruction of the peer's link.
  bool reports_close = true;
  // The minimum size to which reserve() grows.
  std::size_t room_bytes = kLeastViewBytes;
};

// Runs inside a TEST_CASE; makes the sections.
void check(const Factory& factory);

}  // namespace tutti::internal::transport::conformance
