// Connected sockets for tests of the tcp transport.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "net/byte_stream.h"

namespace tutti::internal::transport::conformance {

enum class Family { kIpv4, kIpv6, kUnix };

std::string name_of(Family family);
// Whether a socket of the family can be bound to its loopback address here.
bool available(Family family);
// `count` connected pairs: the i-th of .first with the i-th of .second. Ends the test on an error.
std::pair<std::vector<net::ByteStream>, std::vector<net::ByteStream>> connected(Family family, int count);

}  // namespace tutti::internal::transport::conformance
