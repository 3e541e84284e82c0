#include "bootstrap/connector.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "base/hex.h"
#include "bootstrap/rank_list.h"
#include "net/acceptor.h"
#include "net/address.h"
#include "net/connect_wait.h"
#include "net/dial.h"
#include "net/socket.h"

namespace tutti::internal {
namespace {

constexpr std::int64_t kGoneMs = 2000;  // ranks listen for as long as they are there
// A rank that has left may have connected before, and its leave notice overtake what proves that.
constexpr std::int64_t kDepartedGraceMs = 200;
constexpr int kStreamsToOtherMachines = 2;
constexpr std::size_t kMaxTcpAddresses = 8;

Result<std::string> random_name() {
  std::uint8_t bytes[12];
  if (Status s = net::random_bytes(bytes, sizeof bytes); !s.is_ok()) return s;
  return "tutti-" + to_hex(bytes);
}

class SocketConnector final : public Connector {
 public:
  SocketConnector(const Settings& settings, bool allow_unix, bool allow_tcp, int rank, const Secret& secret)
      : settings_(settings),
        allow_unix_(allow_unix),
        allow_tcp_(allow_tcp),
        rank_(rank),
        owner_(::getpid()),
        secret_(secret),
        acceptor_(secret, net::Claim{net::Purpose::kLink, rank, 0, 1}) {}
  ~SocketConnector() override;
  Status open(PeerInfo* info);
  Status listen_on_path(PeerInfo* info) override;
  void set_peers(std::vector<PeerInfo> peers, std::vector<Meeting> meetings) override {
    peers_ = std::move(peers);
    meetings_ = std::move(meetings);
  }
  void watch_stalls(StallWatch* watch) override { stalls_ = watch; }
  Result<std::vector<Channel>> connect(const std::vector<int>& peers, const FailureState& failure,
                                       Deadline deadline) override;

 private:
  // One peer that this side dials.
  struct Dialling {
    int peer = -1;
    ChannelKind kind = ChannelKind::kTcp;
    std::vector<std::unique_ptr<net::Dial>> dials;  // one per stream; null once finished
    std::vector<UniqueFd> sockets;
  };
  struct Arrived {
    ChannelKind kind = ChannelKind::kTcp;
    std::vector<UniqueFd> sockets;  // by index; those still to come are invalid
  };

  Status open_unix(PeerInfo* info);
  Status open_tcp(PeerInfo* info);
  Status check(const std::vector<int>& peers) const;
  Status begin(int peer, std::vector<Dialling>* dialling) const;
  Status begin_tcp(Dialling* dialling) const;
  Result<bool> begin_unix(Dialling* dialling) const;
  Status advance(const net::PollSet& set, std::vector<Dialling>* dialling) const;
  void collect();
  [[nodiscard]] bool complete(int peer) const;
  Status step(std::vector<Dialling>* dialling, Deadline deadline);
  [[nodiscard]] std::vector<int> missing(const std::vector<int>& peers, const std::vector<Dialling>& dialling) const;
  // Inlined, GCC 12 warns of a grace that is not set.
  [[gnu::noinline]] Status hopeless(const std::vector<int>& waited_for, const FailureState& failure,
                                    std::optional<Deadline>* grace) const;
  Status timed_out(const std::vector<int>& waited_for, const std::vector<Dialling>& dialling,
                   const FailureState& failure) const;
  std::vector<Channel> hand_over(const std::vector<int>& peers, std::vector<Dialling>* dialling);
  [[nodiscard]] const PeerInfo& info_of(int peer) const { return peers_[static_cast<std::size_t>(peer)]; }
  [[nodiscard]] const Meeting& meeting_with(int peer) const { return meetings_[static_cast<std::size_t>(peer)]; }
  [[nodiscard]] std::string who(int peer) const;

  const Settings settings_;
  const bool allow_unix_;
  const bool allow_tcp_;
  const int rank_;
  const pid_t owner_;
  const Secret secret_;
  net::Acceptor acceptor_;
  std::vector<PeerInfo> peers_;
  std::vector<Meeting> meetings_;
  std::map<int, Arrived> arrived_;  // by rank; also early ones, for a later connect()
  std::string path_;
  StallWatch* stalls_ = nullptr;
};

SocketConnector::~SocketConnector() {
  if (!path_.empty() && owner_ == ::getpid()) ::unlink(path_.c_str());
}

Status SocketConnector::open(PeerInfo* info) {
  if (allow_unix_) {
    if (Status s = open_unix(info); !s.is_ok()) return s;
  }
  return allow_tcp_ ? open_tcp(info) : Status();
}

Status SocketConnector::open_unix(PeerInfo* info) {
  Result<std::string> name = random_name();
  if (!name.is_ok()) return name.status();
  Result<UniqueFd> listener = net::listen_unix(net::Address::unix_abstract(*name));
  if (!listener.is_ok()) return listener.status();
  acceptor_.add_listener(std::move(listener).value(), true);
  info->unix_address = *name;
  return {};
}

Status SocketConnector::open_tcp(PeerInfo* info) {
  Result<UniqueFd> listener = net::listen_tcp(settings_.port_low, settings_.port_high);
  if (!listener.is_ok()) return listener.status();
  Result<net::Address> bound = net::local_address(listener->get());
  if (!bound.is_ok()) return bound.status();
  Result<std::vector<net::Address>> addresses = net::interface_addresses(settings_.interface);
  if (!addresses.is_ok()) return addresses.status();
  for (const net::Address& address : *addresses) {
    if (info->tcp_addresses.size() == kMaxTcpAddresses) break;
    info->tcp_addresses.push_back(address.with_port(bound->port()).text());
  }
  acceptor_.add_listener(std::move(listener).value(), false);
  return {};
}

Status SocketConnector::listen_on_path(PeerInfo* info) {
  if (!path_.empty()) return {};
  Result<std::string> name = random_name();
  if (!name.is_ok()) return name.status();
  const std::string path = environment_variable("TMPDIR").value_or("/tmp") + "/" + *name;
  Result<net::Address> address = net::Address::unix_path(path);
  if (!address.is_ok()) return address.status();
  Result<UniqueFd> listener = net::listen_unix(*address);
  if (!listener.is_ok()) return listener.status();
  path_ = path;
  acceptor_.add_listener(std::move(listener).value(), true);
  info->unix_path = path;
  return {};
}

std::string SocketConnector::who(int peer) const {
  const PeerInfo& info = info_of(peer);
  return describe_rank(peer, info.hostname, info.pid);
}

Status SocketConnector::check(const std::vector<int>& peers) const {
  std::set<int> seen;
  for (const int peer : peers) {
    if (peer < 0 || peer >= static_cast<int>(peers_.size()) || peer == rank_ || !seen.insert(peer).second) {
      return Status::internal(fmt::format("connect() to rank {}, which is this rank, no rank or named twice", peer));
    }
  }
  return {};
}

Status SocketConnector::begin(int peer, std::vector<Dialling>* dialling) const {
  Dialling entry;
  entry.peer = peer;
  Result<bool> by_unix = begin_unix(&entry);
  if (!by_unix.is_ok()) return by_unix.status();
  if (!*by_unix) {
    if (Status s = begin_tcp(&entry); !s.is_ok()) return s;
  }
  dialling->push_back(std::move(entry));
  return {};
}

// False if the peer is not to be reached through a Unix socket.
Result<bool> SocketConnector::begin_unix(Dialling* dialling) const {
  const PeerInfo& mine = info_of(rank_);
  const PeerInfo& peer = info_of(dialling->peer);
  const bool wanted = meeting_with(dialling->peer).kind == ChannelKind::kUnix;
  if (!allow_unix_ || !wanted || !mine.same_machine(peer)) return false;
  std::vector<net::Address> targets;
  if (!peer.unix_address.empty() && peer.network_namespace == mine.network_namespace) {
    targets.push_back(net::Address::unix_abstract(peer.unix_address));
  } else if (!peer.unix_path.empty()) {
    Result<net::Address> address = net::Address::unix_path(peer.unix_path);
    if (address.is_ok()) targets.push_back(*address);
  }
  if (targets.empty()) return false;
  const net::Claim claim{net::Purpose::kLink, rank_, 0, 1};
  dialling->kind = ChannelKind::kUnix;
  dialling->dials.push_back(std::make_unique<net::Dial>(std::move(targets), secret_, claim, dialling->peer, true));
  dialling->sockets.resize(1);
  return true;
}

Status SocketConnector::begin_tcp(Dialling* dialling) const {
  const PeerInfo& peer = info_of(dialling->peer);
  if (!allow_tcp_ || peer.tcp_addresses.empty()) {
    return Status::remote(fmt::format("no allowed transport reaches {} (TUTTI_TRANSPORTS={})", who(dialling->peer),
                                      settings_.transports));
  }
  std::vector<net::Address> targets;
  for (const std::string& text : peer.tcp_addresses) {
    Result<net::Address> address = net::parse_address(text);
    if (!address.is_ok()) return address.status().with_context(who(dialling->peer));
    targets.push_back(*address);
  }
  const bool near = info_of(rank_).same_machine(peer);
  const int chosen = settings_.tcp_streams > 0 ? settings_.tcp_streams : near ? 1 : kStreamsToOtherMachines;
  const int wanted = meeting_with(dialling->peer).streams;
  const int streams = wanted > 0 ? wanted : chosen;
  dialling->kind = ChannelKind::kTcp;
  dialling->dials.clear();
  dialling->sockets.clear();
  dialling->sockets.resize(static_cast<std::size_t>(streams));
  for (int i = 0; i < streams; ++i) {
    const net::Claim claim{net::Purpose::kLink, rank_, static_cast<std::uint16_t>(i),
                           static_cast<std::uint16_t>(streams)};
    dialling->dials.push_back(std::make_unique<net::Dial>(targets, secret_, claim, dialling->peer, true));
  }
  return {};
}

Status SocketConnector::advance(const net::PollSet& set, std::vector<Dialling>* dialling) const {
  for (Dialling& entry : *dialling) {
    for (std::size_t i = 0; i < entry.dials.size(); ++i) {
      std::unique_ptr<net::Dial>& dial = entry.dials[i];
      if (!dial) continue;
      dial->process(set);
      if (dial->done()) {
        entry.sockets[i] = dial->take();
        dial.reset();
      } else if (!dial->shortage().is_ok()) {
        return dial->shortage().with_context("connecting to " + who(entry.peer));
      } else if (entry.kind == ChannelKind::kTcp && dial->gone_for(kGoneMs)) {
        return Status::remote(fmt::format("{} has ended: its address is no longer served by this job ({})",
                                          who(entry.peer), dial->trouble()));
      } else if (entry.kind == ChannelKind::kUnix && dial->unreachable()) {
        // The socket is out of reach (another container, a strict file system): the network remains.
        const std::string why = dial->trouble();
        if (Status s = begin_tcp(&entry); !s.is_ok()) return s.with_context("unix socket " + why);
        break;
      }
    }
  }
  return {};
}

// Sorts in what the acceptor has proven.
void SocketConnector::collect() {
  for (net::Authenticated& connection : acceptor_.take()) {
    const net::Claim& peer = connection.peer;
    if (peer.rank <= rank_) continue;  // those are dialled from here
    Arrived& arrived = arrived_[peer.rank];
    const ChannelKind kind = connection.is_unix ? ChannelKind::kUnix : ChannelKind::kTcp;
    if (arrived.kind != kind || arrived.sockets.size() != peer.count) {
      arrived = Arrived{};
      arrived.kind = kind;
      arrived.sockets.resize(peer.count);
    }
    if (!connection.is_unix) {
      net::set_keep_alive(connection.socket.get());
      net::set_unpaced_if_local(connection.socket.get());
    }
    arrived.sockets[peer.index] = std::move(connection.socket);
  }
}

bool SocketConnector::complete(int peer) const {
  const auto at = arrived_.find(peer);
  if (at == arrived_.end()) return false;
  const std::vector<UniqueFd>& sockets = at->second.sockets;
  return std::all_of(sockets.begin(), sockets.end(), [](const UniqueFd& fd) { return fd.valid(); });
}

std::vector<int> SocketConnector::missing(const std::vector<int>& peers, const std::vector<Dialling>& dialling) const {
  std::vector<int> result;
  for (const int peer : peers) {
    if (peer > rank_ && !complete(peer)) result.push_back(peer);
  }
  for (const Dialling& entry : dialling) {
    const auto pending = [](const std::unique_ptr<net::Dial>& dial) { return dial != nullptr; };
    if (std::any_of(entry.dials.begin(), entry.dials.end(), pending)) result.push_back(entry.peer);
  }
  std::sort(result.begin(), result.end());
  return result;
}

// One round of waiting, of at most kFailureCheckMs.
Status SocketConnector::step(std::vector<Dialling>* dialling, Deadline deadline) {
  net::PollSet set;
  set.clear(kFailureCheckMs);
  set.wake_at(deadline);
  acceptor_.prepare(&set);
  for (Dialling& entry : *dialling) {
    for (std::unique_ptr<net::Dial>& dial : entry.dials) {
      if (dial) dial->prepare(&set);
    }
  }
  if (Status s = set.wait(); !s.is_ok()) return s;
  acceptor_.process(set);
  collect();
  return advance(set, dialling);
}

Status SocketConnector::timed_out(const std::vector<int>& waited_for, const std::vector<Dialling>& dialling,
                                  const FailureState& failure) const {
  const std::string missing = stalls_ != nullptr ? stalls_->missing() : "";
  if (failure.failed()) return failure.status();
  if (!missing.empty()) return Status::timeout("timed out while making connections: " + missing);
  std::string trouble;
  for (const Dialling& entry : dialling) {
    for (const std::unique_ptr<net::Dial>& dial : entry.dials) {
      if (dial && trouble.empty()) trouble = fmt::format(" (rank {}: {})", entry.peer, dial->trouble());
    }
  }
  return Status::timeout("timed out while connecting to " + list_ranks(waited_for) + trouble);
}

// -1: none of them.
int departed_of(const std::vector<int>& peers, const FailureState& failure) {
  if (!failure.any_departed()) return -1;
  const auto left = std::find_if(peers.begin(), peers.end(), [&](int peer) { return failure.departed(peer); });
  return left == peers.end() ? -1 : *left;
}

// Why those that are waited for will not come. A rank that has left has until *grace.
Status SocketConnector::hopeless(const std::vector<int>& waited_for, const FailureState& failure,
                                 std::optional<Deadline>* grace) const {
  if (waited_for.back() > rank_ && !acceptor_.shortage().is_ok()) {
    return acceptor_.shortage().with_context("connecting to " + list_ranks(waited_for));
  }
  const int left = departed_of(waited_for, failure);
  if (left < 0) {
    grace->reset();
  } else if (!grace->has_value()) {
    *grace = Deadline::after_ms(kDepartedGraceMs);
  } else if ((*grace)->passed()) {
    return Status::remote(who(left) + " has left the job and cannot be connected to");
  }
  return {};
}

Result<std::vector<Channel>> SocketConnector::connect(const std::vector<int>& peers, const FailureState& failure,
                                                      Deadline deadline) {
  if (Status s = check(peers); !s.is_ok()) return s;
  const net::ConnectWait wait(&failure, deadline, stalls_);
  std::optional<Deadline> grace;
  std::vector<Dialling> dialling;
  for (const int peer : peers) {
    if (peer > rank_) continue;
    if (Status s = begin(peer, &dialling); !s.is_ok()) return s;
  }
  for (;;) {
    const std::vector<int> waited_for = missing(peers, dialling);
    if (waited_for.empty()) return hand_over(peers, &dialling);
    Status s = wait.go_on([&] { return hopeless(waited_for, failure, &grace); },
                          [&] { return timed_out(waited_for, dialling, failure); });
    if (!s.is_ok()) return s;
    if (s = step(&dialling, grace && grace->at_ns() < deadline.at_ns() ? *grace : deadline); !s.is_ok()) return s;
  }
}

std::vector<Channel> SocketConnector::hand_over(const std::vector<int>& peers, std::vector<Dialling>* dialling) {
  std::vector<Channel> channels;
  for (const int peer : peers) {
    Channel channel;
    channel.peer = peer;
    channel.dialled = peer < rank_;
    if (channel.dialled) {
      const auto at =
          std::find_if(dialling->begin(), dialling->end(), [&](const Dialling& d) { return d.peer == peer; });
      channel.kind = at->kind;
      channel.sockets = std::move(at->sockets);
      for (const UniqueFd& socket : channel.sockets) {
        if (channel.kind == ChannelKind::kTcp) {
          net::set_keep_alive(socket.get());
          net::set_unpaced_if_local(socket.get());
        }
      }
    } else {
      Arrived& arrived = arrived_[peer];
      channel.kind = arrived.kind;
      channel.sockets = std::move(arrived.sockets);
      arrived_.erase(peer);
    }
    channels.push_back(std::move(channel));
  }
  return channels;
}

}  // namespace

Result<std::unique_ptr<Connector>> Connector::listen(const Settings& settings, bool allow_unix, bool allow_tcp,
                                                     int rank, const Secret& secret, PeerInfo* info) {
  auto connector = std::make_unique<SocketConnector>(settings, allow_unix, allow_tcp, rank, secret);
  if (Status s = connector->open(info); !s.is_ok()) return s;
  return std::unique_ptr<Connector>(std::move(connector));
}

}  // namespace tutti::internal
