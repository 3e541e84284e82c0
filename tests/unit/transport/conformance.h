// What every transport must do, checked on pairs of connected links that a factory makes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "transport/transport.h"

namespace tutti::internal::transport::conformance {

struct Pair {
  std::shared_ptr<void> owner;  // whatever the links need to live
  std::unique_ptr<Link> a;
  std::unique_ptr<Link> b;
  // What a's rank sleeps on if a->wait_fds() is empty.
  int wake_a = -1;
};

struct Factory {
  std::string name;
  std::function<Pair(std::uint64_t seed)> make;
  // False for a transport that does not see when the peer's link is destroyed.
  bool reports_close = true;
  // To how many bytes reserve() grows at the least.
  std::size_t room_bytes = kLeastViewBytes;
};

// Runs inside a TEST_CASE; makes the sections.
void check(const Factory& factory);

}  // namespace tutti::internal::transport::conformance
