#include "transport/connections/connector.h"

#include <sys/socket.h>

#include <atomic>

#include "catch_compat.h"
#include "net/address.h"
#include "net/auth.h"
#include "net/dial.h"
#include "net/socket.h"
#include "receive_all.h"
#include "transport/connections/listeners.h"
#include "unit/join/ranks.h"

using namespace tutti::internal;
using tutti::internal::test::on_threads;

namespace {

constexpr std::int64_t kLongMs = 60'000;

struct Rank {
  PeerInfo info;
  std::unique_ptr<Connector> connector;
  FailureState failure;
};

struct Options {
  bool allow_unix = true;
  bool allow_tcp = true;
  int streams = 0;
  bool on_path = false;
  ConnectionSpec spec = {ConnectionKind::kUnix, 0, false};
};

Secret some_secret() {
  Secret secret;
  secret.fill(42);
  return secret;
}

std::vector<std::unique_ptr<Rank>> make_ranks(int count, const Options& options) {
  std::vector<std::unique_ptr<Rank>> ranks;
  std::vector<PeerInfo> book;
  Settings settings;
  settings.interface = "lo";
  settings.tcp_streams = options.streams;
  for (int r = 0; r < count; ++r) {
    auto rank = std::make_unique<Rank>();
    Result<PeerInfo> info = PeerInfo::local(r);
    REQUIRE(info.is_ok());
    rank->info = *info;
    Result<std::unique_ptr<Connector>> connector =
        Connector::listen(settings, options.allow_unix, options.allow_tcp, r, some_secret(), "", &rank->info);
    INFO(connector.status().message());
    REQUIRE(connector.is_ok());
    rank->connector = std::move(connector).value();
    if (options.on_path) {
      REQUIRE(rank->connector->listen_on_path(&rank->info).is_ok());
      rank->info.network_namespace += static_cast<std::uint64_t>(r);  // as if in different containers
    }
    book.push_back(rank->info);
    ranks.push_back(std::move(rank));
  }
  // The files need not exist when ranks connect.
  for (auto& rank : ranks) rank->connector->open_paths(book);
  for (auto& rank : ranks) rank->connector->remove_path();
  for (auto& rank : ranks) rank->connector->set_peers(book, std::vector<ConnectionSpec>(book.size(), options.spec));
  return ranks;
}

std::vector<int> all_but(int me, int count) {
  std::vector<int> peers;
  for (int peer = 0; peer < count; ++peer) {
    if (peer != me) peers.push_back(peer);
  }
  return peers;
}

// Sends (own rank, stream) over every socket and checks the answer.
bool speaks_to_peer(const PeerConnection& channel, int me) {
  const Deadline deadline = Deadline::after_ms(kLongMs);
  for (std::size_t i = 0; i < channel.streams.size(); ++i) {
    const int mine[2] = {me, static_cast<int>(i)};
    if (!net::send_all(channel.streams[i].get(), std::as_bytes(std::span(mine)), deadline).is_ok()) return false;
  }
  for (std::size_t i = 0; i < channel.streams.size(); ++i) {
    int theirs[2] = {-1, -1};
    if (!test::receive_all(channel.streams[i].get(), std::as_writable_bytes(std::span(theirs)), deadline)) {
      return false;
    }
    if (theirs[0] != channel.peer || theirs[1] != static_cast<int>(i)) return false;
  }
  return true;
}

void check_all_pairs(int count, const Options& options, ConnectionKind kind, std::size_t sockets) {
  auto ranks = make_ranks(count, options);
  std::atomic<int> good = 0;
  on_threads(count, [&](int me) {
    Rank& rank = *ranks[static_cast<std::size_t>(me)];
    const std::vector<int> peers = all_but(me, count);
    Result<std::vector<PeerConnection>> channels =
        rank.connector->connect(peers, rank.failure, Deadline::after_ms(kLongMs));
    if (!channels.is_ok() || channels->size() != peers.size()) return;
    bool right = true;
    for (std::size_t i = 0; i < peers.size(); ++i) {
      const PeerConnection& channel = channels.value()[i];
      right = right && channel.peer == peers[i] && channel.kind == kind && channel.streams.size() == sockets &&
              channel.dialled == (peers[i] < me) && speaks_to_peer(channel, me);
    }
    if (right) ++good;
  });
  CHECK(good == count);
}

}  // namespace

TEST_CASE("every rank connects to every other by each kind") {
  SECTION("abstract unix socket") {
    check_all_pairs(8, {}, ConnectionKind::kUnix, 1);
  }
  SECTION("unix socket by path") {
    check_all_pairs(4, {.on_path = true}, ConnectionKind::kUnix, 1);
  }
  SECTION("TCP") {
    check_all_pairs(8, {.allow_unix = false}, ConnectionKind::kTcp, 1);
  }
  SECTION("TCP with streams") {
    check_all_pairs(6, {.allow_unix = false, .streams = 4}, ConnectionKind::kTcp, 4);
  }
  SECTION("TCP, where a Unix socket could be reached as well") {
    check_all_pairs(3, {.streams = 2, .spec = {ConnectionKind::kTcp, 0, false}}, ConnectionKind::kTcp, 2);
  }
  SECTION("as many TCP streams as the transport wants, whatever the settings say") {
    check_all_pairs(3, {.streams = 4, .spec = {ConnectionKind::kTcp, 1, false}}, ConnectionKind::kTcp, 1);
  }
}

namespace {

// Of a communicator of all ranks in reverse order.
std::unique_ptr<Connector> reversed(const std::vector<std::unique_ptr<Rank>>& ranks, int me, std::uint64_t id,
                                    const ConnectionSpec& spec) {
  Settings settings;
  settings.interface = "lo";
  std::vector<int> members;
  std::vector<PeerInfo> book;
  for (auto r = static_cast<int>(ranks.size()); r-- > 0;) {
    members.push_back(r);
    book.push_back(ranks[static_cast<std::size_t>(r)]->info);
    book.back().rank = static_cast<int>(members.size()) - 1;
  }
  auto made = ranks[static_cast<std::size_t>(me)]->connector->split(id, members, settings);
  made->set_peers(book, std::vector<ConnectionSpec>(book.size(), spec));
  return made;
}

}  // namespace

TEST_CASE("connectors that share their listeners connect at the same time") {
  constexpr int kRanks = 4;
  constexpr std::size_t kChildren = 5;
  for (const ConnectionKind kind : {ConnectionKind::kUnix, ConnectionKind::kTcp}) {
    auto ranks = make_ranks(kRanks, {});
    std::vector<std::vector<std::unique_ptr<Connector>>> children(kRanks);
    for (int me = 0; me < kRanks; ++me) {
      for (std::uint64_t id = 1; id <= kChildren; ++id) {
        children[static_cast<std::size_t>(me)].push_back(reversed(ranks, me, id, {kind, 0, false}));
      }
    }
    std::atomic<int> good = 0;
    on_threads(kRanks * static_cast<int>(kChildren), [&](int thread) {
      const int me = thread % kRanks;
      const int rank = kRanks - 1 - me;
      auto& child = children[static_cast<std::size_t>(me)][static_cast<std::size_t>(thread / kRanks)];
      auto channels = child->connect(all_but(rank, kRanks), ranks[static_cast<std::size_t>(me)]->failure,
                                     Deadline::after_ms(kLongMs));
      if (!channels.is_ok()) return;
      for (const PeerConnection& channel : channels.value()) {
        if (channel.kind != kind || channel.dialled != (kRanks - 1 - channel.peer < me) ||
            !speaks_to_peer(channel, rank))
          return;
      }
      ++good;
    });
    CHECK(good == kRanks * static_cast<int>(kChildren));
  }
}

TEST_CASE("connections for another communicator are kept for it") {
  auto ranks = make_ranks(2, {});
  std::atomic<int> good = 0;
  on_threads(2, [&](int me) {
    const ConnectionSpec spec{ConnectionKind::kUnix, 0, false};
    std::vector<std::unique_ptr<Connector>> children;
    for (std::uint64_t id = 1; id <= 2; ++id) children.push_back(reversed(ranks, me, id, spec));
    const int peer = me;  // as they are reversed
    const FailureState& failure = ranks[static_cast<std::size_t>(me)]->failure;
    // One first connects to the second, while the other waits for the first.
    for (const int at : {me == 0 ? 1 : 0, me == 0 ? 0 : 1}) {
      auto channels = children[static_cast<std::size_t>(at)]->connect({peer}, failure, Deadline::after_ms(kLongMs));
      if (!channels.is_ok()) return;
      if (me == 1 && at == 0) std::this_thread::sleep_for(std::chrono::milliseconds(20));
      children[static_cast<std::size_t>(at)].reset();
    }
    ++good;
  });
  CHECK(good == 2);
}

TEST_CASE("connections kept for a communicator are limited, and none are kept for an unknown one") {
  Settings settings;
  settings.interface = "lo";
  PeerInfo info = PeerInfo::local(0).value();
  Listeners listeners(some_secret(), 0, Encryption::kOff);
  REQUIRE(listeners.open(settings, false, true, "", &info).is_ok());
  listeners.subscribe(5, 2);
  const net::Address address = net::parse_address(info.tcp_addresses.front()).value();
  std::vector<std::unique_ptr<net::Dial>> dials;
  for (const std::uint64_t communicator : {5, 6, 5, 5}) {
    const auto number = static_cast<std::uint16_t>(dials.size());
    const net::Claim claim{net::Purpose::kLink, 1, number, 4, communicator};
    dials.push_back(std::make_unique<net::Dial>(std::vector<net::Address>{address}, some_secret(), claim, 0,
                                                net::DialOptions{.patient = true}));
    const Deadline deadline = Deadline::after_ms(kLongMs);
    Listeners::Visit visit(listeners, {5});
    // Slightly longer than the dialler needs: the acceptor must read its last message.
    for (int rounds = 0; rounds < 20 && !deadline.passed(); rounds += dials.back()->done() ? 1 : 0) {
      net::PollSet set;
      set.clear(10);
      visit.prepare(&set);
      if (!dials.back()->done()) dials.back()->prepare(&set);
      REQUIRE(set.wait().is_ok());
      visit.process(set);
      if (!dials.back()->done()) dials.back()->process(set);
    }
    REQUIRE(dials.back()->done());
  }
  const auto kept = listeners.take(5);
  REQUIRE(kept.size() == 2);
  CHECK(kept[0].peer.index == 2);
  CHECK(kept[1].peer.index == 3);
  char byte = 0;
  const net::ByteStream refused = dials[1]->take();
  CHECK(::recv(refused.get(), &byte, 1, MSG_DONTWAIT) == 0);
}

namespace {

// Listens on TCP, on loopback.
struct Listening {
  Listening() {
    Settings settings;
    settings.interface = "lo";
    PeerInfo info = PeerInfo::local(0).value();
    REQUIRE(listeners.open(settings, false, true, "", &info).is_ok());
    address = net::parse_address(info.tcp_addresses.front()).value();
  }
  Listeners listeners{some_secret(), 0, Encryption::kOff};
  net::Address address;
};

}  // namespace

TEST_CASE("while no thread waits for connections, unauthenticated peers are closed and the others are kept") {
  Listening at;
  at.listeners.subscribe(5, 2);
  CHECK_FALSE(at.listeners.attend());
  const UniqueFd unauthenticated = net::start_connect(at.address).value();
  net::Dial dial({at.address}, some_secret(), {net::Purpose::kLink, 1, 0, 1, 5}, 0, {.patient = true});
  const std::int64_t begin_ns = now_ns();
  const auto passed_ms = [&] { return (now_ns() - begin_ns) / 1'000'000; };
  std::int64_t authenticated_ms = 0;
  std::int64_t closed_ms = 0;
  while (closed_ms == 0 && passed_ms() < kLongMs) {
    net::PollSet set;
    set.clear(20);
    if (!dial.done()) dial.prepare(&set);
    REQUIRE(set.wait().is_ok());
    if (!dial.done()) dial.process(set);
    if (dial.done() && authenticated_ms == 0) authenticated_ms = passed_ms();
    const bool pending = at.listeners.attend();
    char byte = 0;
    if (::recv(unauthenticated.get(), &byte, 1, MSG_DONTWAIT) == 0) closed_ms = passed_ms();
    if (authenticated_ms != 0) CHECK(pending == (closed_ms == 0));
  }
  CHECK(authenticated_ms > 0);
  CHECK(closed_ms >= net::Acceptor::kHandshakeMs);
  CHECK(at.listeners.take(5).size() == 1);
}

TEST_CASE("a thread that waits for connections is the only one to attend the listeners") {
  Listening at;
  const UniqueFd peer = net::start_connect(at.address).value();
  Listeners::Visit visit(at.listeners, {});
  net::PollSet set;
  set.clear(0);
  visit.prepare(&set);
  CHECK_FALSE(at.listeners.attend());
  CHECK_FALSE(visit.has_pending());
  REQUIRE(set.wait().is_ok());
  visit.process(set);
  CHECK(visit.has_pending());
}

TEST_CASE("the queue of a small job's listener is short") {
  Listening at;
  at.listeners.limit_queues(4);
  std::vector<UniqueFd> peers;
  std::size_t connected = 0;
  for (int i = 0; i < 400; ++i) {
    peers.push_back(net::start_connect(at.address).value());
    if (net::connect_result(peers.back().get()).is_ok()) ++connected;
  }
  CHECK(connected >= 100);
  CHECK(connected <= 257);  // Linux keeps one more
}

TEST_CASE("an unreachable unix socket gives way to TCP") {
  auto ranks = make_ranks(2, {.streams = 2});
  std::vector<PeerInfo> book = {ranks[0]->info, ranks[1]->info};
  book[0].unix_address = "tutti-without-listener";
  ranks[1]->connector->set_peers(book, std::vector<ConnectionSpec>(book.size(), Options().spec));
  std::vector<std::size_t> sockets(2);
  on_threads(2, [&](int me) {
    const auto m = static_cast<std::size_t>(me);
    auto channels = ranks[m]->connector->connect({1 - me}, ranks[m]->failure, Deadline::after_ms(kLongMs));
    if (channels.is_ok() && channels->front().kind == ConnectionKind::kTcp)
      sockets[m] = channels->front().streams.size();
  });
  CHECK(sockets == std::vector<std::size_t>{2, 2});
}

TEST_CASE("no allowed transport is an error that names the peer") {
  auto ranks = make_ranks(2, {.allow_tcp = false});
  std::vector<PeerInfo> book = {ranks[0]->info, ranks[1]->info};
  book[0].boot.fill(1);
  ranks[1]->connector->set_peers(book, std::vector<ConnectionSpec>(book.size(), Options().spec));
  auto channels = ranks[1]->connector->connect({0}, ranks[1]->failure, Deadline::after_ms(kLongMs));
  CHECK(channels.status().code() == Code::kRemoteError);
  CHECK(channels.status().message().find("rank 0") != std::string::npos);
}

TEST_CASE("a peer that does not come is named at the deadline") {
  auto ranks = make_ranks(4, {});
  const int me = GENERATE(0, 3);
  Rank& rank = *ranks[static_cast<std::size_t>(me)];
  auto channels = rank.connector->connect({1, 2}, rank.failure, Deadline::after_ms(200));
  CHECK(channels.status().code() == Code::kTimeout);
  CHECK(channels.status().message().find("ranks 1, 2") != std::string::npos);
}

TEST_CASE("a failure ends the wait with its own status") {
  auto ranks = make_ranks(3, {});
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    ranks[1]->failure.fail(Status::aborted("enough"));
  });
  auto channels = ranks[1]->connector->connect({0, 2}, ranks[1]->failure, Deadline::after_ms(kLongMs));
  other.join();
  CHECK(channels.status().code() == Code::kAborted);
}

TEST_CASE("a departed peer is not waited for") {
  auto ranks = make_ranks(2, {});
  ranks[0]->failure.set_departed({1, 0});
  auto channels = ranks[0]->connector->connect({1}, ranks[0]->failure, Deadline::after_ms(kLongMs));
  CHECK(channels.status().code() == Code::kRemoteError);
}

// Its connection arrived during the wait for another peer, and its leave notice on another path.
TEST_CASE("a peer that has connected before it left is connected to") {
  auto ranks = make_ranks(3, {.allow_unix = false});
  const net::Address address = net::parse_address(ranks[0]->info.tcp_addresses.front()).value();
  net::ByteStream stream(net::start_connect(address).value());
  const auto streams = static_cast<std::uint16_t>(1);
  net::Handshake handshake(net::Handshake::Role::kDialler, some_secret(), {net::Purpose::kLink, 1, 0, streams}, 0);
  const Deadline deadline = Deadline::after_ms(kLongMs);
  bool proven = false;
  while (!proven && !deadline.passed()) {
    CHECK(ranks[0]->connector->connect({2}, ranks[0]->failure, Deadline::after_ms(20)).status().code() ==
          Code::kTimeout);
    auto advanced = handshake.advance(&stream);
    // Connecting may take a moment.
    if (advanced.is_ok()) proven = *advanced;
  }
  REQUIRE(proven);
  ranks[0]->failure.set_departed({1, 0});
  auto channels = ranks[0]->connector->connect({1}, ranks[0]->failure, deadline);
  INFO(channels.status().message());
  REQUIRE(channels.is_ok());
  CHECK(channels->front().peer == 1);
}

TEST_CASE("a connection that comes before its connect() is kept") {
  auto ranks = make_ranks(3, {});
  // 2 connects to 0 and 1 at once; 0 first wants only 1, and then 2.
  std::atomic<int> good = 0;
  on_threads(3, [&](int me) {
    Rank& rank = *ranks[static_cast<std::size_t>(me)];
    const Deadline deadline = Deadline::after_ms(kLongMs);
    if (me == 1) std::this_thread::sleep_for(std::chrono::milliseconds(100));
    const std::vector<int> first = me == 0 ? std::vector<int>{1} : all_but(me, 3);
    auto channels = rank.connector->connect(first, rank.failure, deadline);
    if (!channels.is_ok()) return;
    if (me == 0) {
      auto later = rank.connector->connect({2}, rank.failure, deadline);
      if (!later.is_ok()) return;
      channels->push_back(std::move(later->front()));
    }
    for (const PeerConnection& channel : channels.value()) {
      if (!speaks_to_peer(channel, me)) return;
    }
    ++good;
  });
  CHECK(good == 3);
}

TEST_CASE("unauthenticated peers at the connector delay no rank") {
  auto ranks = make_ranks(2, {.allow_unix = false});
  std::vector<UniqueFd> strangers;
  const net::Address address = net::parse_address(ranks[0]->info.tcp_addresses.front()).value();
  for (int i = 0; i < 600; ++i) {
    Result<UniqueFd> stranger = net::start_connect(address);
    REQUIRE(stranger.is_ok());
    if (i % 2 == 0) ::send(stranger->get(), "GET / HTTP/1.0\r\n\r\n", 18, MSG_NOSIGNAL);
    strangers.push_back(std::move(stranger).value());
  }
  std::atomic<int> good = 0;
  on_threads(2, [&](int me) {
    const auto m = static_cast<std::size_t>(me);
    auto channels = ranks[m]->connector->connect({1 - me}, ranks[m]->failure, Deadline::after_ms(kLongMs));
    if (channels.is_ok() && speaks_to_peer(channels->front(), me)) ++good;
  });
  CHECK(good == 2);
}

TEST_CASE("a rank that is gone without a notice is an error long before the deadline") {
  for (const bool by_unix : {true, false}) {
    INFO((by_unix ? "unix first" : "TCP"));
    auto ranks = make_ranks(3, {.allow_unix = by_unix});
    ranks[0]->connector.reset();
    std::vector<Status> statuses(3);
    const Deadline soon = Deadline::after_ms(kLongMs / 2);
    on_threads(3, [&](int me) {
      Rank& rank = *ranks[static_cast<std::size_t>(me)];
      if (me > 0) {
        statuses[static_cast<std::size_t>(me)] =
            rank.connector->connect({0}, rank.failure, Deadline::after_ms(kLongMs)).status();
      }
    });
    CHECK_FALSE(soon.passed());
    for (const std::size_t me : {1, 2}) {
      INFO(statuses[me].message());
      CHECK(statuses[me].code() == Code::kRemoteError);
      CHECK(statuses[me].message().find("rank 0 (host ") != std::string::npos);
      CHECK(statuses[me].message().find("no longer served by this job") != std::string::npos);
    }
  }
}
