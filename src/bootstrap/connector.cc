#include "bootstrap/connector.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "bootstrap/listeners.h"
#include "bootstrap/rank_list.h"
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
constexpr std::size_t kMostStreams = 16;
// Connections of a rank that are kept: of an attempt that broke off, and of the one after it.
constexpr std::size_t kMostKept = 2 * kMostStreams;

class SocketConnector final : public Connector {
 public:
  // `job_ranks`: of each rank its number in the communicator that joined.
  SocketConnector(const Settings& settings, bool allow_unix, bool allow_tcp, std::uint64_t communicator, int rank,
                  std::vector<int> job_ranks, const Secret& secret, std::shared_ptr<Listeners> listeners)
      : settings_(settings),
        allow_unix_(allow_unix),
        allow_tcp_(allow_tcp),
        communicator_(communicator),
        rank_(rank),
        job_ranks_(std::move(job_ranks)),
        secret_(secret),
        listeners_(std::move(listeners)) {
    listeners_->subscribe(communicator_, std::max<std::size_t>(1, job_ranks_.size()) * kMostKept);
  }
  ~SocketConnector() override { listeners_->unsubscribe(communicator_); }
  Status listen_on_path(PeerInfo* info) override { return listeners_->listen_on_path(info); }
  void set_peers(std::vector<PeerInfo> peers, std::vector<Meeting> meetings) override {
    peers_ = std::move(peers);
    meetings_ = std::move(meetings);
    listeners_->subscribe(communicator_, peers_.size() * kMostKept);
  }
  [[nodiscard]] std::unique_ptr<Connector> split(std::uint64_t communicator, const std::vector<int>& members,
                                                 const Settings& settings) const override;
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

  Status check(const std::vector<int>& peers) const;
  Status begin(int peer, std::vector<Dialling>* dialling) const;
  Status begin_tcp(Dialling* dialling) const;
  Result<bool> begin_unix(Dialling* dialling) const;
  Status advance(const net::PollSet& set, std::vector<Dialling>* dialling) const;
  void collect();
  [[nodiscard]] bool complete(int peer) const;
  Status step(Listeners::Visit* visit, std::vector<Dialling>* dialling, Deadline deadline) const;
  [[nodiscard]] std::vector<int> missing(const std::vector<int>& peers, const std::vector<Dialling>& dialling) const;
  // Inlined, GCC 12 warns of a grace that is not set.
  [[gnu::noinline]] Status hopeless(const std::vector<int>& waited_for, const Status& shortage,
                                    const FailureState& failure, std::optional<Deadline>* grace) const;
  Status timed_out(const std::vector<int>& waited_for, const std::vector<Dialling>& dialling,
                   const FailureState& failure) const;
  std::vector<Channel> hand_over(const std::vector<int>& peers, std::vector<Dialling>* dialling);
  [[nodiscard]] const PeerInfo& info_of(int peer) const { return peers_[static_cast<std::size_t>(peer)]; }
  [[nodiscard]] const Meeting& meeting_with(int peer) const { return meetings_[static_cast<std::size_t>(peer)]; }
  [[nodiscard]] std::string who(int peer) const;
  [[nodiscard]] int job_rank_of(int rank) const {
    return job_ranks_.empty() ? rank : job_ranks_[static_cast<std::size_t>(rank)];
  }
  [[nodiscard]] int rank_of(int job_rank) const;
  // Of one connection of `count` to a peer that this side dials.
  [[nodiscard]] std::unique_ptr<net::Dial> dial(const std::vector<net::Address>& targets, int peer, int index,
                                                int count) const;

  const Settings settings_;
  const bool allow_unix_;
  const bool allow_tcp_;
  const std::uint64_t communicator_;
  const int rank_;
  const std::vector<int> job_ranks_;  // empty: the same
  const Secret secret_;
  const std::shared_ptr<Listeners> listeners_;
  std::vector<PeerInfo> peers_;
  std::vector<Meeting> meetings_;
  std::map<int, Arrived> arrived_;  // by rank; also early ones, for a later connect()
  StallWatch* stalls_ = nullptr;
};

// Of a rank of the job; -1: it is none of this communicator.
int SocketConnector::rank_of(int job_rank) const {
  if (job_ranks_.empty()) return job_rank;
  const auto at = std::find(job_ranks_.begin(), job_ranks_.end(), job_rank);
  return at == job_ranks_.end() ? -1 : static_cast<int>(at - job_ranks_.begin());
}

std::unique_ptr<Connector> SocketConnector::split(std::uint64_t communicator, const std::vector<int>& members,
                                                  const Settings& settings) const {
  std::vector<int> job_ranks;
  for (const int member : members) job_ranks.push_back(job_rank_of(member));
  const auto self = std::find(members.begin(), members.end(), rank_);
  return std::make_unique<SocketConnector>(settings, allow_unix_, allow_tcp_, communicator,
                                           static_cast<int>(self - members.begin()), std::move(job_ranks), secret_,
                                           listeners_);
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
  dialling->kind = ChannelKind::kUnix;
  dialling->dials.push_back(dial(targets, dialling->peer, 0, 1));
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
  for (int i = 0; i < streams; ++i) dialling->dials.push_back(dial(targets, dialling->peer, i, streams));
  return {};
}

std::unique_ptr<net::Dial> SocketConnector::dial(const std::vector<net::Address>& targets, int peer, int index,
                                                 int count) const {
  const net::Claim claim{net::Purpose::kLink, job_rank_of(rank_), static_cast<std::uint16_t>(index),
                         static_cast<std::uint16_t>(count), communicator_};
  return std::make_unique<net::Dial>(targets, secret_, claim, job_rank_of(peer), true);
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

// Sorts in what has come.
void SocketConnector::collect() {
  for (net::Authenticated& connection : listeners_->take(communicator_)) {
    const net::Claim& peer = connection.peer;
    const int rank = rank_of(peer.rank);
    if (rank <= rank_ || peer.count > kMostStreams) continue;  // lower ones are dialled from here
    Arrived& arrived = arrived_[rank];
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
Status SocketConnector::step(Listeners::Visit* visit, std::vector<Dialling>* dialling, Deadline deadline) const {
  net::PollSet set;
  set.clear(kFailureCheckMs);
  set.wake_at(deadline);
  visit->prepare(&set);
  for (Dialling& entry : *dialling) {
    for (std::unique_ptr<net::Dial>& dial : entry.dials) {
      if (dial) dial->prepare(&set);
    }
  }
  if (Status s = set.wait(); !s.is_ok()) return s;
  visit->process(set);
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
Status SocketConnector::hopeless(const std::vector<int>& waited_for, const Status& shortage,
                                 const FailureState& failure, std::optional<Deadline>* grace) const {
  if (waited_for.back() > rank_ && !shortage.is_ok()) {
    return shortage.with_context("connecting to " + list_ranks(waited_for));
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
  Listeners::Visit visit(*listeners_, communicator_);
  for (;;) {
    collect();
    const std::vector<int> waited_for = missing(peers, dialling);
    if (waited_for.empty()) return hand_over(peers, &dialling);
    Status s = wait.go_on([&] { return hopeless(waited_for, visit.shortage(), failure, &grace); },
                          [&] { return timed_out(waited_for, dialling, failure); });
    if (!s.is_ok()) return s;
    s = step(&visit, &dialling, grace && grace->at_ns() < deadline.at_ns() ? *grace : deadline);
    if (!s.is_ok()) return s;
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
  auto listeners = std::make_shared<Listeners>(secret, rank);
  if (Status s = listeners->open(settings, allow_unix, allow_tcp, info); !s.is_ok()) return s;
  return std::unique_ptr<Connector>(std::make_unique<SocketConnector>(
      settings, allow_unix, allow_tcp, 0, rank, std::vector<int>(), secret, std::move(listeners)));
}

}  // namespace tutti::internal
