#include "socket_pairs.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <system_error>

namespace tutti::internal::transport::conformance {
namespace {

struct Address {
  sockaddr_storage storage{};
  socklen_t size = sizeof(sockaddr_storage);
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
};

Address loopback(Family family) {
  Address address;
  if (family == Family::kIpv4) {
    auto* in = reinterpret_cast<sockaddr_in*>(&address.storage);
    in->sin_family = AF_INET;
    in->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.size = sizeof *in;
  } else {
    auto* in6 = reinterpret_cast<sockaddr_in6*>(&address.storage);
    in6->sin6_family = AF_INET6;
    in6->sin6_addr = in6addr_loopback;
    address.size = sizeof *in6;
  }
  return address;
}

void must(bool succeeded, const char* what) {
  if (!succeeded) throw std::system_error(errno, std::system_category(), what);
}

std::pair<UniqueFd, UniqueFd> connected_pair(Family family) {
  if (family == Family::kUnix) {
    std::array<int, 2> fds{};
    must(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds.data()) == 0, "socketpair");
    return {UniqueFd(fds[0]), UniqueFd(fds[1])};
  }
  const int domain = family == Family::kIpv4 ? AF_INET : AF_INET6;
  const UniqueFd listener(::socket(domain, SOCK_STREAM | SOCK_CLOEXEC, 0));
  Address address = loopback(family);
  must(listener.valid() && ::bind(listener.get(), address.get(), address.size) == 0, "bind");
  must(::listen(listener.get(), 1) == 0, "listen");
  must(::getsockname(listener.get(), address.get(), &address.size) == 0, "getsockname");
  UniqueFd client(::socket(domain, SOCK_STREAM | SOCK_CLOEXEC, 0));
  must(client.valid() && ::connect(client.get(), address.get(), address.size) == 0, "connect");
  UniqueFd server(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  must(server.valid(), "accept");
  return {std::move(client), std::move(server)};
}

}  // namespace

std::string name_of(Family family) {
  switch (family) {
    case Family::kIpv4: return "ipv4";
    case Family::kIpv6: return "ipv6";
    case Family::kUnix: return "unix";
  }
  return "unknown";
}

bool available(Family family) {
  if (family == Family::kUnix) return true;
  const UniqueFd probe(::socket(family == Family::kIpv4 ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  Address address = loopback(family);
  return probe.valid() && ::bind(probe.get(), address.get(), address.size) == 0;
}

std::pair<std::vector<net::ByteStream>, std::vector<net::ByteStream>> connected(Family family, int count) {
  std::pair<std::vector<net::ByteStream>, std::vector<net::ByteStream>> ends;
  for (int i = 0; i < count; ++i) {
    auto [a, b] = connected_pair(family);
    ends.first.emplace_back(std::move(a));
    ends.second.emplace_back(std::move(b));
  }
  return ends;
}

}  // namespace tutti::internal::transport::conformance
