// The contents of unique ids, and how a rank finds the root.
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "catch_compat.h"
#include "join/root_search.h"
#include "join/unique_id.h"
#include "net/acceptor.h"
#include "net/socket.h"

using namespace tutti::internal;

namespace {

// A thread that serves until the end of its scope.
class Server {
 public:
  explicit Server(const std::function<void()>& serve_once)
      : thread_([this, serve_once] {
          while (!over_) serve_once();
        }) {}
  ~Server() {
    over_ = true;
    thread_.join();
  }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

 private:
  std::atomic<bool> over_{false};
  std::thread thread_;
};

// Copies the received bytes, but no single byte: a root's welcome is a single byte.
void forward(const UniqueFd& from, const UniqueFd& to) {
  std::array<char, 4096> bytes;
  const ssize_t got = ::recv(from.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
  if (got > 1) (void)::send(to.get(), bytes.data(), static_cast<std::size_t>(got), MSG_NOSIGNAL);
}

std::int64_t sleeps_of_this_thread() {
  rusage usage{};
  ::getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_nvcsw;
}

}  // namespace

TEST_CASE("a unique id holds 21 addresses of IPv4, 5 of IPv6, or some of both, in their order") {
  // For each address its family.
  const std::string families =
      GENERATE(std::string(21, '4'), std::string(5, '6'), std::string("6") + std::string(17, '4'),
               std::string(17, '4') + "6", std::string("4464"), std::string("4"), std::string("64646"));
  RootContact contact;
  contact.secret.fill(9);
  for (std::size_t i = 0; i < families.size(); ++i) {
    const std::string number = std::to_string(i + 1);
    const std::string text = families[i] == '4' ? "10.0.0." + number + ":99" : "[2001:db8::" + number + "]:99";
    contact.addresses.push_back(net::parse_address(text).value());
  }
  INFO(families);
  REQUIRE(fitting_addresses(contact.addresses) == families.size());
  const UniqueIdBytes id = encode_unique_id(contact);
  Result<RootContact> back = decode_unique_id(id);
  REQUIRE(back.is_ok());
  CHECK(back->secret == contact.secret);
  CHECK(net::list_addresses(back->addresses) == net::list_addresses(contact.addresses));
  UniqueIdBytes damaged = id;
  damaged[5] = 0;
  CHECK(decode_unique_id(damaged).status().code() == Code::kInvalidArgument);
  damaged[5] = 200;
  CHECK(decode_unique_id(damaged).status().code() == Code::kInvalidArgument);
}

TEST_CASE("addresses for which a unique id has no room are counted") {
  std::vector<net::Address> addresses;
  for (int i = 0; i < 30; ++i) {
    addresses.push_back(net::parse_address("10.0.0." + std::to_string(i) + ":99").value());
  }
  CHECK(fitting_addresses(addresses) == 21);
  addresses.insert(addresses.begin(), net::parse_address("[2001:db8::1]:99").value());
  CHECK(fitting_addresses(addresses) == 1 + 17);
}

TEST_CASE("a host's name is looked up until the root is found") {
  const Settings settings;
  Secret secret{};
  secret.fill(3);
  net::Acceptor root(secret, {net::Purpose::kRoot, -1, 0, 1});
  UniqueFd listener = net::listen_tcp(0, 0).value();
  const std::uint16_t port = net::local_address(listener.get())->port();
  root.add_listener(std::move(listener), false);
  // First no address, then an unused address reserved for documentation, then the right one.
  int look_ups = 0;
  RootPlace place;
  place.host = "the.root";
  place.ports = {port};
  place.resolve = [&](const std::string& host, std::uint16_t) -> Result<std::vector<net::Address>> {
    REQUIRE(host == "the.root");
    ++look_ups;
    if (look_ups <= 2) return Status(Code::kSystemError, "cannot resolve host 'the.root'");
    return std::vector<net::Address>{net::parse_address(look_ups <= 4 ? "192.0.2.1:0" : "127.0.0.1:0").value()};
  };
  std::atomic<bool> found{false};
  std::thread acceptor([&] {
    net::PollSet set;
    while (!found) {
      set.clear(10);
      root.prepare(&set);
      if (!set.wait().is_ok()) return;
      root.process(set);
    }
  });
  Result<net::ByteStream> connection =
      find_root(place, secret, {false, true}, {1, 2, settings, Deadline::after_ms(60'000)});
  found = true;
  acceptor.join();
  CHECK(connection.status().message() == "");
  CHECK(look_ups >= 5);
}

TEST_CASE("a host without an address is looked up until the time is over, and named") {
  const Settings settings;
  RootPlace place;
  place.host = "the.root";
  place.ports = {1};
  place.resolve = [](const std::string&, std::uint16_t) -> Result<std::vector<net::Address>> {
    return Status(Code::kSystemError, "cannot resolve host 'the.root'");
  };
  const Result<net::ByteStream> connection =
      find_root(place, {}, {false, true}, {1, 2, settings, Deadline::after_ms(500)});
  CHECK(connection.status().code() == Code::kTimeout);
  CHECK(connection.status().message().find("cannot resolve host 'the.root'") != std::string::npos);
}

TEST_CASE("a host with several addresses is dialled once, although look-ups change the order") {
  const Settings settings;
  const UniqueFd listener = net::listen_tcp(0, 0).value();  // no process answers
  int look_ups = 0;
  RootPlace place;
  place.host = "the.root";
  place.ports = {net::local_address(listener.get())->port()};
  place.resolve = [&](const std::string&, std::uint16_t) -> Result<std::vector<net::Address>> {
    std::vector<net::Address> found = {net::parse_address("127.0.0.1:0").value(),
                                       net::parse_address("127.0.0.2:0").value()};
    if (++look_ups % 2 == 0) std::swap(found[0], found[1]);
    return found;
  };
  const Result<net::ByteStream> connection =
      find_root(place, {}, {false, true}, {1, 2, settings, Deadline::after_ms(2000)});
  CHECK(connection.status().code() == Code::kTimeout);
  CHECK(look_ups >= 3);
  int connections = 0;
  while (net::accept_one(listener.get()).value().valid()) ++connections;
  CHECK(connections == 2);
}

TEST_CASE("a rank sleeps while the root that it has found by name does not welcome it") {
  const Settings settings;
  Secret secret{};
  secret.fill(3);
  net::Acceptor root(secret, {net::Purpose::kRoot, -1, 0, 1});
  UniqueFd behind = net::listen_tcp(0, 0).value();
  const std::string root_text = "127.0.0.1:" + std::to_string(net::local_address(behind.get())->port());
  root.add_listener(std::move(behind), false);
  const UniqueFd listener = net::listen_tcp(0, 0).value();
  UniqueFd rank_side;
  UniqueFd root_side;
  const Server server([&] {
    net::PollSet set;
    set.clear(10);
    root.prepare(&set);
    if (!set.wait().is_ok()) return;
    root.process(set);
    if (!rank_side.valid()) {
      rank_side = net::accept_one(listener.get()).value();
      if (rank_side.valid()) root_side = net::start_connect(net::parse_address(root_text).value()).value();
      return;
    }
    forward(rank_side, root_side);
    forward(root_side, rank_side);
  });
  RootPlace place;
  place.host = "the.root";
  place.ports = {net::local_address(listener.get())->port()};
  place.resolve = [](const std::string&, std::uint16_t) -> Result<std::vector<net::Address>> {
    return std::vector<net::Address>{net::parse_address("127.0.0.1:0").value()};
  };
  const std::int64_t before = sleeps_of_this_thread();
  const Result<net::ByteStream> connection =
      find_root(place, secret, {false, true}, {1, 2, settings, Deadline::after_ms(3000)});
  CHECK(connection.status().code() == Code::kTimeout);
  CHECK(sleeps_of_this_thread() - before < 100);
}
