#include "tcp_pairs.h"

#include <utility>

#include "catch_compat.h"
#include "transport/tcp/link.h"

namespace tutti::internal::transport::conformance {

std::unique_ptr<Link> link_over(std::vector<net::ByteStream> streams, int peer, int buffer_bytes) {
  tcp::Options options;
  options.peer = peer;
  options.socket_buffer_bytes = buffer_bytes;
  auto link = tcp::make_link(std::move(streams), options);
  REQUIRE(link.is_ok());
  return std::move(link).value();
}

Pair tcp_pair(Family family, int streams, int buffer_bytes) {
  auto [a, b] = connected(family, streams);
  return {nullptr, link_over(std::move(a), 1, buffer_bytes), link_over(std::move(b), 0, buffer_bytes), -1};
}

Pair encrypted_tcp_pair(Family family, int streams, int buffer_bytes) {
  auto [a, b] = connected(family, streams);
  for (std::size_t i = 0; i < a.size(); ++i) {
    net::TrafficSecrets ours;
    net::TrafficSecrets theirs;
    ours.sending.fill(static_cast<std::uint8_t>(2 * i + 1));
    ours.receiving.fill(static_cast<std::uint8_t>(2 * i + 2));
    theirs = {ours.receiving, ours.sending};
    REQUIRE(a[i].encrypt(ours).is_ok());
    REQUIRE(b[i].encrypt(theirs).is_ok());
  }
  return {nullptr, link_over(std::move(a), 1, buffer_bytes), link_over(std::move(b), 0, buffer_bytes), -1};
}

}  // namespace tutti::internal::transport::conformance
