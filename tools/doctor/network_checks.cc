#include "network_checks.h"

#include <fmt/core.h>
#include <poll.h>

#include <algorithm>
#include <utility>

#include "join/peer_info.h"
#include "net/acceptor.h"
#include "net/dial.h"
#include "net/socket.h"
#include "os/clock.h"

namespace tutti::internal::tools {
namespace {

constexpr std::int64_t kPatienceMs = 3000;
constexpr const char* kNames =
    "launchers that name this host to ranks on others (TUTTI_ROOT, MASTER_ADDR, Slurm's node list)";

// Without the port.
std::string host_of(const net::Address& address) {
  const std::string text = address.text();
  return text.substr(0, text.rfind(':'));
}

std::string list(const std::vector<net::Address>& addresses) {
  std::vector<std::string> hosts;
  std::string text;
  for (const net::Address& address : addresses) {
    const std::string one = host_of(address);
    if (std::find(hosts.begin(), hosts.end(), one) != hosts.end()) continue;
    text += (hosts.empty() ? "" : ", ") + one;
    hosts.push_back(one);
  }
  return text;
}

std::string why_chosen(const net::Address& address, const Settings& settings) {
  if (!settings.interface.empty()) return fmt::format("as TUTTI_INTERFACE={} says", settings.interface);
  if (address.is_loopback()) return "there is no other, so no other host can be reached";
  return "by the route to the outside";
}

// If a resource of this process is exhausted, a change of the network does not help.
std::string fix(const Status& why, const std::string& otherwise) {
  return why.is_exhaustion() ? "raise the limit that is named there" : otherwise;
}

// A connection of this process to itself, authenticated and encrypted.
Result<net::ByteStream> encrypted_connection(std::int64_t patience_ms) {
  net::Secret secret{};
  if (Status s = net::random_bytes(secret.data(), secret.size()); !s.is_ok()) return s;
  Result<UniqueFd> listener = net::listen_tcp(0, 0);
  if (!listener.is_ok()) return listener.status();
  const Result<net::Address> bound = net::local_address(listener->get());
  if (!bound.is_ok()) return bound.status();
  const Result<net::Address> loopback = net::parse_address("127.0.0.1:0");
  if (!loopback.is_ok()) return loopback.status();
  net::Acceptor acceptor(secret, {net::Purpose::kLink, 0, 0, 1, 0, Encryption::kOn});
  acceptor.add_listener(std::move(*listener), false);
  net::Dial dial({loopback.value().with_port(bound.value().port())}, secret, {net::Purpose::kLink, 1, 0, 1}, 0);
  std::vector<net::Authenticated> accepted;
  const Deadline deadline = Deadline::after_ms(patience_ms);
  while (!dial.done() || accepted.empty()) {
    if (deadline.passed()) return Status::timeout(dial.trouble());
    net::PollSet set;
    set.clear(100);
    acceptor.prepare(&set);
    if (!dial.done()) dial.prepare(&set);
    if (Status s = set.wait(); !s.is_ok()) return s;
    acceptor.process(set);
    if (!dial.done()) dial.process(set);
    for (net::Authenticated& one : acceptor.take()) accepted.push_back(std::move(one));
  }
  return dial.take();
}

}  // namespace

Check check_host_name(const std::string& name, const Result<std::vector<net::Address>>& resolved,
                      const std::vector<net::Address>& own) {
  const std::string what = "host name";
  if (!resolved.is_ok()) {
    return {Verdict::kWarn, what, fmt::format("{} ({} need it)", resolved.status().message(), kNames),
            fmt::format("name {} in /etc/hosts or DNS, or give launchers an address", name)};
  }
  const std::vector<net::Address>& all = resolved.value();
  const auto is_own = [&](const net::Address& a) {
    return std::any_of(own.begin(), own.end(), [&](const net::Address& o) { return host_of(o) == host_of(a); });
  };
  const bool loopback = std::all_of(all.begin(), all.end(), [](const net::Address& a) { return a.is_loopback(); });
  const bool alone = std::all_of(own.begin(), own.end(), [](const net::Address& a) { return a.is_loopback(); });
  if (loopback && !alone) {
    return {
        Verdict::kWarn, what,
        fmt::format("{} is {} here, loopback, as Debian's /etc/hosts has it. Ranks on this host reach rank 0 by it. "
                    "If a launcher resolves the name here and passes the address to other hosts, their ranks "
                    "connect to themselves",
                    name, list(all)),
        fmt::format("in /etc/hosts, give {} the address {}; or give launchers that address", name,
                    own.empty() ? "of its interface" : host_of(own.front()))};
  }
  if (!loopback && std::none_of(all.begin(), all.end(), is_own)) {
    return {Verdict::kWarn, what,
            fmt::format("{} is {} here, but ranks listen at other addresses ({})", name, list(all), list(own)),
            "correct /etc/hosts or DNS, or TUTTI_INTERFACE; or give launchers an address"};
  }
  return {Verdict::kOk, what, fmt::format("{} is {}", name, list(all)), ""};
}

Check check_interface(const Result<std::vector<net::Address>>& own, const Settings& settings) {
  const std::string what = "interface";
  if (!own.is_ok()) {
    return {Verdict::kFail, what, own.status().message(),
            "correct TUTTI_INTERFACE, or give an interface an address (ip addr add ADDRESS/BITS dev INTERFACE; ip link "
            "set INTERFACE up)"};
  }
  const net::Address& first = own.value().front();
  const double gbits = net::gbits_of_interface(first);
  std::string found = fmt::format("{}, {}{}, {}", net::interface_of(first), host_of(first),
                                  gbits > 0 ? fmt::format(", {:g} Gb/s", gbits) : "", why_chosen(first, settings));
  if (own.value().size() > 1) {
    found += fmt::format("; then {}", list({own.value().begin() + 1, own.value().end()}));
  }
  if (first.is_loopback() && settings.interface.empty()) {
    return {Verdict::kWarn, what, found, "for jobs of several hosts, give an interface an address"};
  }
  return {Verdict::kOk, what, found, ""};
}

Check check_port(const net::Address& own, const Settings& settings, std::int64_t patience_ms) {
  const std::string what = "TCP port";
  Result<UniqueFd> listener = net::listen_tcp(settings.port_low, settings.port_high);
  if (!listener.is_ok()) {
    return {Verdict::kFail, what, listener.status().message(),
            fix(listener.status(), "other ports in TUTTI_PORT_RANGE")};
  }
  const Result<net::Address> bound = net::local_address(listener->get());
  if (!bound.is_ok()) return {Verdict::kFail, what, bound.status().message(), ""};
  const net::Address target = own.with_port(bound.value().port());
  const std::string filter =
      fmt::format("let TCP pass to {} in the packet filter (nft list ruleset, iptables -L, firewall-cmd, ufw){}",
                  host_of(own), settings.port_low == 0 ? ", or only certain ports, which TUTTI_PORT_RANGE names" : "");
  Result<UniqueFd> connection = net::start_connect(target);
  if (!connection.is_ok())
    return {Verdict::kFail, what, connection.status().message(), fix(connection.status(), filter)};
  const Deadline deadline = Deadline::after_ms(patience_ms);
  Status connected = net::connect_result(connection->get());
  while (connected.code() == Code::kInProgress && !deadline.passed()) {
    pollfd entry{connection->get(), POLLOUT, 0};
    (void)::poll(&entry, 1, deadline.left_ms(100));
    connected = net::connect_result(connection->get());
  }
  if (connected.code() == Code::kInProgress) {
    return {Verdict::kFail, what,
            fmt::format("listening works, but a connection to this host's own {} has no answer within {} s",
                        target.text(), static_cast<double>(patience_ms) / 1000),
            filter};
  }
  if (!connected.is_ok()) {
    return {Verdict::kFail, what, fmt::format("{}: {}", target.text(), connected.message()), filter};
  }
  return {Verdict::kOk, what,
          fmt::format("{} was bound and connected to; whether other hosts reach it, only these can tell "
                      "(nc -vz {} PORT there, with nc -l PORT here)",
                      target.text(), host_of(own)),
          ""};
}

Check check_encryption(const Settings& settings, std::int64_t patience_ms) {
  const std::string what = "encryption";
  if (settings.encrypt == Encryption::kOff) {
    return {Verdict::kOk, what, "TCP connections are not encrypted (TUTTI_ENCRYPT=on encrypts them)", ""};
  }
  Result<net::ByteStream> connection = encrypted_connection(patience_ms);
  if (!connection.is_ok() || !connection->encrypted()) {
    return {Verdict::kFail, what, fmt::format("no encrypted connection to itself: {}", connection.status().message()),
            "install libssl 3, or unset TUTTI_ENCRYPT"};
  }
  const bool kernel = connection->kernel_encrypts();
  const bool all = settings.encrypt == Encryption::kOn;
  return {
      Verdict::kOk, what,
      fmt::format("{} (TLS 1.3), by {}; {}",
                  all ? "all TCP connections" : "TCP connections that leave the networks of this host",
                  kernel ? "the kernel" : "this process, because the kernel's module tls is not there (modprobe tls)",
                  all ? "RDMA is not used" : "RDMA only within these networks"),
      ""};
}

Checks check_network(const Settings& settings) {
  const Result<std::vector<net::Address>> own = net::interface_addresses(settings.interface);
  const std::string name = host_name();
  Checks checks = {check_interface(own, settings)};
  checks.push_back(
      check_host_name(name, net::resolve(name, 0), own.is_ok() ? own.value() : std::vector<net::Address>()));
  if (own.is_ok()) checks.push_back(check_port(own.value().front(), settings, kPatienceMs));
  checks.push_back(check_encryption(settings, kPatienceMs));
  return checks;
}

}  // namespace tutti::internal::tools
