#include "transport/connections/connector.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "base/rank_list.h"
#include "net/address.h"
#include "net/connect_wait.h"
#include "net/dial.h"
#include "net/socket.h"
#include "transport/connections/departures.h"
#include "transport/connections/listeners.h"

namespace tutti::internal {
namespace {

// A rank listens as long as it lives. So if its host refuses connections for this time, the rank has ended. Longer than
// a host refuses because of a full queue of connections.
constexpr std::int64_t kGoneMs = 500;
constexpr int kStreamsToOtherMachines = 2;
constexpr std::size_t kMostStreams = 16;
// Kept connections of a rank: of a broken attempt, and of the next one.
constexpr std::size_t kMostKept = 2 * kMostStreams;

class SocketConnector final : public Connector {
 public:
  // `job_ranks`: of each rank its number in the communicator that joined.
  SocketConnector(const Settings& settings, bool allow_unix, bool allow_tcp, std::uint64_t communicator, int rank,
                  std::vector<int> job_ranks, const Secret& secret, std::shared_ptr<Listeners> listeners,
                  std::shared_ptr<Reconnector> reconnector)
      : settings_(settings),
        allow_unix_(allow_unix),
        allow_tcp_(allow_tcp),
        communicator_(communicator),
        rank_(rank),
        job_ranks_(std::move(job_ranks)),
        secret_(secret),
        listeners_(std::move(listeners)),
        reconnector_(std::move(reconnector)) {
    listeners_->subscribe(communicator_, std::max<std::size_t>(1, job_ranks_.size()) * kMostKept);
  }
  ~SocketConnector() override { listeners_->unsubscribe(communicator_); }
  Status listen_on_path(PeerInfo* info) override { return listeners_->listen_on_path(info); }
  void open_paths(const RankTable<PeerInfo>& peers) override;
  void remove_path() override { listeners_->remove_path(); }
  void set_peers(RankTable<PeerInfo> peers, std::vector<ConnectionSpec> specs) override {
    peers_ = std::move(peers);
    specs_ = std::move(specs);
    listeners_->subscribe(communicator_, peers_.size() * kMostKept);
    if (communicator_ == 0) listeners_->limit_queues(peers_.size());
  }
  bool attend_listeners() override { return listeners_->attend(); }
  [[nodiscard]] Reconnector& reconnector() override { return *reconnector_; }
  [[nodiscard]] std::unique_ptr<Connector> split(std::uint64_t communicator, const std::vector<int>& members,
                                                 const Settings& settings) const override;
  void watch_stalls(StallWatch* watch) override { stalls_ = watch; }
  Result<std::vector<PeerConnection>> connect(const std::vector<int>& peers, const FailureState& failure,
                                              Deadline deadline) override;
  Status connect_shared(const std::vector<int>& peers, const Take& take, const FailureState& failure,
                        Deadline deadline) const override;
  [[nodiscard]] int job_rank(int peer) const override { return job_rank_of(peer); }
  [[nodiscard]] std::uint64_t communicator() const override { return communicator_; }

 private:
  // One peer that this side dials.
  struct Dialling {
    int peer = -1;
    ConnectionKind kind = ConnectionKind::kTcp;
    std::vector<std::unique_ptr<net::Dial>> dials;  // one per stream; null once finished
    std::vector<net::ByteStream> streams;
  };
  struct Arrived {
    ConnectionKind kind = ConnectionKind::kTcp;
    std::vector<net::ByteStream> streams;  // by index; those still to come are invalid
  };
  // One call.
  struct Attempt {
    bool shared = false;
    std::vector<int> peers;  // that are not connected yet
    std::vector<Dialling> dialling;
    std::map<int, Arrived>* arrived = nullptr;  // by rank
    std::vector<std::uint64_t> mailboxes;
  };

  Status run(Attempt* attempt, const Take& take, const FailureState& failure, Deadline deadline) const;
  Status check(const std::vector<int>& peers) const;
  Status begin(int peer, Attempt* attempt) const;
  Status begin_tcp(Dialling* dialling, bool shared) const;
  Result<std::vector<net::Address>> addresses_of(int peer) const;
  void let_reconnect(PeerConnection* channel) const;
  Result<bool> begin_unix(Dialling* dialling, bool shared) const;
  Status advance(const net::PollSet& set, Attempt* attempt) const;
  void collect(const Attempt& attempt) const;
  void sort_in(net::Authenticated connection, const Attempt& attempt) const;
  [[nodiscard]] std::vector<std::uint64_t> mailboxes(const Attempt& attempt) const;
  Status step(Listeners::Visit* visit, Attempt* attempt, Deadline deadline) const;
  [[nodiscard]] static bool complete(int peer, const Attempt& attempt);
  [[nodiscard]] Status hopeless(const std::vector<int>& waited_for, const Status& shortage,
                                Departures* departures) const;
  Status timed_out(const Attempt& attempt, const FailureState& failure) const;
  PeerConnection hand_over(int peer, Attempt* attempt) const;
  // Of two ranks, the one with the higher number in the communicator that joined dials: the same one for all
  // communicators.
  [[nodiscard]] bool dials(int peer) const { return job_rank_of(peer) < job_rank_of(rank_); }
  [[nodiscard]] const PeerInfo& info_of(int peer) const { return peers_[static_cast<std::size_t>(peer)]; }
  [[nodiscard]] const ConnectionSpec& spec_of(int peer) const { return specs_[static_cast<std::size_t>(peer)]; }
  [[nodiscard]] std::string who(int peer) const;
  [[nodiscard]] int job_rank_of(int rank) const {
    return job_ranks_.empty() ? rank : job_ranks_[static_cast<std::size_t>(rank)];
  }
  [[nodiscard]] int rank_of(int job_rank) const;
  // Of one connection of `count` to a peer that this side dials.
  [[nodiscard]] std::unique_ptr<net::Dial> dial(const std::vector<net::Address>& targets, int peer, int index,
                                                int count, bool shared) const;

  const Settings settings_;
  const bool allow_unix_;
  const bool allow_tcp_;
  const std::uint64_t communicator_;
  const int rank_;
  const std::vector<int> job_ranks_;  // empty: the same
  const Secret secret_;
  const std::shared_ptr<Listeners> listeners_;
  const std::shared_ptr<Reconnector> reconnector_;
  RankTable<PeerInfo> peers_;
  std::vector<ConnectionSpec> specs_;
  std::map<int, Arrived> arrived_;  // by rank; also early ones, for a later connect()
  StallWatch* stalls_ = nullptr;
};

// The number here of a rank of the job; -1: it does not belong to this communicator.
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
                                           listeners_, reconnector_);
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

void SocketConnector::open_paths(const RankTable<PeerInfo>& peers) {
  std::vector<std::string> paths;
  const PeerInfo& mine = peers[static_cast<std::size_t>(rank_)];
  for (const PeerInfo& peer : peers) {
    const bool apart = mine.same_machine(peer) && mine.network_namespace != peer.network_namespace;
    if (apart && dials(peer.rank) && !peer.unix_path.empty()) paths.push_back(peer.unix_path);
  }
  listeners_->open_paths(paths);
}

Status SocketConnector::begin(int peer, Attempt* attempt) const {
  Dialling entry;
  entry.peer = peer;
  Result<bool> by_unix = begin_unix(&entry, attempt->shared);
  if (!by_unix.is_ok()) return by_unix.status();
  if (!*by_unix) {
    if (Status s = begin_tcp(&entry, attempt->shared); !s.is_ok()) return s;
  }
  attempt->dialling.push_back(std::move(entry));
  return {};
}

// False if the peer cannot be reached through a Unix socket.
Result<bool> SocketConnector::begin_unix(Dialling* dialling, bool shared) const {
  const PeerInfo& mine = info_of(rank_);
  const PeerInfo& peer = info_of(dialling->peer);
  const bool wanted = spec_of(dialling->peer).kind == ConnectionKind::kUnix;
  if (!allow_unix_ || !wanted || !mine.same_machine(peer)) return false;
  std::vector<net::Address> targets;
  if (!peer.unix_address.empty() && peer.network_namespace == mine.network_namespace) {
    targets.push_back(net::Address::unix_abstract(peer.unix_address));
  } else if (const auto address = listeners_->opened(peer.unix_path)) {
    targets.push_back(*address);
  }
  if (targets.empty()) return false;
  dialling->kind = ConnectionKind::kUnix;
  dialling->dials.push_back(dial(targets, dialling->peer, 0, 1, shared));
  dialling->streams.resize(1);
  return true;
}

Status SocketConnector::begin_tcp(Dialling* dialling, bool shared) const {
  const PeerInfo& peer = info_of(dialling->peer);
  if (!allow_tcp_ || peer.tcp_addresses.empty()) {
    return Status::remote(fmt::format("no allowed transport reaches {} (TUTTI_TRANSPORTS={})", who(dialling->peer),
                                      settings_.transports));
  }
  Result<std::vector<net::Address>> targets = addresses_of(dialling->peer);
  if (!targets.is_ok()) return targets.status();
  const bool near = info_of(rank_).same_machine(peer);
  const int chosen = settings_.tcp_streams > 0 ? settings_.tcp_streams : near ? 1 : kStreamsToOtherMachines;
  const int wanted = spec_of(dialling->peer).streams;
  // A shared connection carries only messages for making links.
  const int streams = shared ? 1 : wanted > 0 ? wanted : chosen;
  dialling->kind = ConnectionKind::kTcp;
  dialling->dials.clear();
  dialling->streams.clear();
  dialling->streams.resize(static_cast<std::size_t>(streams));
  for (int i = 0; i < streams; ++i) dialling->dials.push_back(dial(*targets, dialling->peer, i, streams, shared));
  return {};
}

Result<std::vector<net::Address>> SocketConnector::addresses_of(int peer) const {
  std::vector<net::Address> addresses;
  for (const std::string& text : info_of(peer).tcp_addresses) {
    Result<net::Address> address = net::parse_address(text);
    if (!address.is_ok()) return address.status().with_context(who(peer));
    addresses.push_back(*address);
  }
  return addresses;
}

// Without the peer's addresses its streams cannot be made anew, which the link then says.
void SocketConnector::let_reconnect(PeerConnection* channel) const {
  if (channel->kind != ConnectionKind::kTcp || !reconnector_->has_begun()) return;
  channel->reconnector = reconnector_;
  Reconnector::Peer& peer = channel->reconnect_peer;
  peer.communicator = communicator_;
  peer.rank = channel->peer;
  peer.job_rank = job_rank_of(channel->peer);
  peer.dialled = channel->dialled;
  peer.name = who(channel->peer);
  peer.silence_ms = channel->silence_ms;
  if (auto addresses = addresses_of(channel->peer); addresses.is_ok()) peer.addresses = std::move(*addresses);
  peer.first_is_sure = net::leads_to_peer(peer.addresses, info_of(rank_).tcp_addresses);
}

std::unique_ptr<net::Dial> SocketConnector::dial(const std::vector<net::Address>& targets, int peer, int index,
                                                 int count, bool shared) const {
  const int own = job_rank_of(rank_);
  const net::Claim claim{net::Purpose::kLink,
                         own,
                         static_cast<std::uint16_t>(index),
                         static_cast<std::uint16_t>(count),
                         shared ? Listeners::shared_by(own) : communicator_,
                         settings_.encrypt};
  const net::DialOptions options{.patient = true,
                                 .first_is_sure = net::leads_to_peer(targets, info_of(rank_).tcp_addresses)};
  return std::make_unique<net::Dial>(targets, secret_, claim, job_rank_of(peer), options);
}

Status SocketConnector::advance(const net::PollSet& set, Attempt* attempt) const {
  for (Dialling& entry : attempt->dialling) {
    for (std::size_t i = 0; i < entry.dials.size(); ++i) {
      std::unique_ptr<net::Dial>& dial = entry.dials[i];
      if (!dial) continue;
      dial->process(set);
      if (dial->done()) {
        entry.streams[i] = dial->take();
        dial.reset();
      } else if (!dial->shortage().is_ok()) {
        return dial->shortage().with_context("connecting to " + who(entry.peer));
      } else if (entry.kind == ConnectionKind::kTcp && dial->gone_for(kGoneMs)) {
        return Status::remote(fmt::format("{} has ended: its address is no longer served by this job ({})",
                                          who(entry.peer), dial->trouble()));
      } else if (entry.kind == ConnectionKind::kUnix && dial->unreachable()) {
        // The socket is out of reach (another container, a strict file system): the network remains.
        const std::string why = dial->trouble();
        if (Status s = begin_tcp(&entry, attempt->shared); !s.is_ok()) return s.with_context("unix socket " + why);
        break;
      }
    }
  }
  return {};
}

std::vector<std::uint64_t> SocketConnector::mailboxes(const Attempt& attempt) const {
  if (!attempt.shared) return {communicator_};
  std::vector<std::uint64_t> result;
  for (const int peer : attempt.peers) {
    if (!dials(peer)) result.push_back(Listeners::shared_by(job_rank_of(peer)));
  }
  return result;
}

void SocketConnector::collect(const Attempt& attempt) const {
  for (const std::uint64_t mailbox : attempt.mailboxes) {
    for (net::Authenticated& connection : listeners_->take(mailbox)) sort_in(std::move(connection), attempt);
  }
}

void SocketConnector::sort_in(net::Authenticated connection, const Attempt& attempt) const {
  const net::Claim& peer = connection.peer;
  const int rank = rank_of(peer.rank);
  if (rank < 0 || rank == rank_ || dials(rank) || peer.count > kMostStreams) return;
  const auto& peers = attempt.peers;
  if (attempt.shared && std::find(peers.begin(), peers.end(), rank) == peers.end()) return;
  Arrived& arrived = (*attempt.arrived)[rank];
  const ConnectionKind kind = connection.is_unix ? ConnectionKind::kUnix : ConnectionKind::kTcp;
  if (arrived.kind != kind || arrived.streams.size() != peer.count) {
    arrived = Arrived{};
    arrived.kind = kind;
    arrived.streams.resize(peer.count);
  }
  if (!connection.is_unix) {
    net::watch_silence(connection.stream.get(), silence_limit_ms(settings_));
    net::set_unpaced_if_local(connection.stream.get());
  }
  arrived.streams[peer.index] = std::move(connection.stream);
}

bool SocketConnector::complete(int peer, const Attempt& attempt) {
  for (const Dialling& entry : attempt.dialling) {
    const auto pending = [](const std::unique_ptr<net::Dial>& dial) { return dial != nullptr; };
    if (entry.peer == peer) return std::none_of(entry.dials.begin(), entry.dials.end(), pending);
  }
  const auto at = attempt.arrived->find(peer);
  if (at == attempt.arrived->end()) return false;
  const std::vector<net::ByteStream>& streams = at->second.streams;
  return std::all_of(streams.begin(), streams.end(), [](const net::ByteStream& stream) { return stream.valid(); });
}

// One round of waiting, of at most kFailureCheckMs.
Status SocketConnector::step(Listeners::Visit* visit, Attempt* attempt, Deadline deadline) const {
  net::PollSet set;
  set.clear(kFailureCheckMs);
  set.wake_at(deadline);
  visit->prepare(&set);
  for (Dialling& entry : attempt->dialling) {
    for (std::unique_ptr<net::Dial>& dial : entry.dials) {
      if (dial) dial->prepare(&set);
    }
  }
  if (Status s = set.wait(); !s.is_ok()) return s;
  visit->process(set);
  return advance(set, attempt);
}

Status SocketConnector::timed_out(const Attempt& attempt, const FailureState& failure) const {
  const std::string missing = stalls_ != nullptr ? stalls_->missing() : "";
  if (failure.failed()) return failure.status();
  if (!missing.empty()) return Status::timeout("timed out while making connections: " + missing);
  std::string trouble;
  for (const Dialling& entry : attempt.dialling) {
    for (const std::unique_ptr<net::Dial>& dial : entry.dials) {
      if (dial && trouble.empty()) trouble = fmt::format(" (rank {}: {})", entry.peer, dial->trouble());
    }
  }
  return Status::timeout("timed out while connecting to " + list_ranks(attempt.peers) + trouble);
}

// The reason why the awaited ranks cannot connect; ok: they may.
Status SocketConnector::hopeless(const std::vector<int>& waited_for, const Status& shortage,
                                 Departures* departures) const {
  const auto accepts = [this](int peer) { return !dials(peer); };
  if (!shortage.is_ok() && std::any_of(waited_for.begin(), waited_for.end(), accepts)) {
    return shortage.with_context("connecting to " + list_ranks(waited_for));
  }
  return departures->look(waited_for);
}

Result<std::vector<PeerConnection>> SocketConnector::connect(const std::vector<int>& peers, const FailureState& failure,
                                                             Deadline deadline) {
  if (Status s = check(peers); !s.is_ok()) return s;
  std::vector<PeerConnection> channels;
  Attempt attempt{false, peers, {}, &arrived_, {}};
  const auto take = [&](PeerConnection channel) {
    channels.push_back(std::move(channel));
    return Status();
  };
  if (Status s = run(&attempt, take, failure, deadline); !s.is_ok()) return s;
  const auto place = [&](const PeerConnection& c) { return std::find(peers.begin(), peers.end(), c.peer); };
  std::sort(channels.begin(), channels.end(), [&](const auto& a, const auto& b) { return place(a) < place(b); });
  return channels;
}

Status SocketConnector::connect_shared(const std::vector<int>& peers, const Take& take, const FailureState& failure,
                                       Deadline deadline) const {
  if (Status s = check(peers); !s.is_ok()) return s;
  std::map<int, Arrived> arrived;
  Attempt attempt{true, peers, {}, &arrived, {}};
  return run(&attempt, take, failure, deadline);
}

Status SocketConnector::run(Attempt* attempt, const Take& take, const FailureState& failure, Deadline deadline) const {
  const net::ConnectWait wait(&failure, deadline, stalls_);
  Departures departures(peers_, failure);
  for (const int peer : attempt->peers) {
    if (!dials(peer)) continue;
    if (Status s = begin(peer, attempt); !s.is_ok()) return s;
  }
  attempt->mailboxes = mailboxes(*attempt);
  Listeners::Visit visit(*listeners_, attempt->mailboxes);
  for (;;) {
    collect(*attempt);
    std::vector<int> waited_for;
    for (const int peer : attempt->peers) {
      if (!complete(peer, *attempt)) {
        waited_for.push_back(peer);
      } else if (Status s = take(hand_over(peer, attempt)); !s.is_ok()) {
        return s;
      }
    }
    attempt->peers = std::move(waited_for);
    if (attempt->peers.empty()) return {};
    Status s = wait.go_on([&] { return hopeless(attempt->peers, visit.shortage(), &departures); },
                          [&] { return timed_out(*attempt, failure); });
    if (!s.is_ok()) return s;
    s = step(&visit, attempt, departures.or_sooner(deadline));
    if (!s.is_ok()) return s;
  }
}

PeerConnection SocketConnector::hand_over(int peer, Attempt* attempt) const {
  PeerConnection channel;
  channel.peer = peer;
  channel.dialled = dials(peer);
  channel.silence_ms = silence_limit_ms(settings_);
  if (!channel.dialled) {
    Arrived& arrived = attempt->arrived->at(peer);
    channel.kind = arrived.kind;
    channel.streams = std::move(arrived.streams);
    attempt->arrived->erase(peer);
    let_reconnect(&channel);
    return channel;
  }
  const auto at = std::find_if(attempt->dialling.begin(), attempt->dialling.end(),
                               [&](const Dialling& d) { return d.peer == peer; });
  channel.kind = at->kind;
  channel.streams = std::move(at->streams);
  attempt->dialling.erase(at);
  for (const net::ByteStream& stream : channel.streams) {
    if (channel.kind == ConnectionKind::kTcp) {
      net::watch_silence(stream.get(), channel.silence_ms);
      net::set_unpaced_if_local(stream.get());
    }
  }
  let_reconnect(&channel);
  return channel;
}

}  // namespace

Result<std::unique_ptr<Connector>> Connector::listen(const Settings& settings, bool allow_unix, bool allow_tcp,
                                                     int rank, const Secret& secret, const std::string& best,
                                                     PeerInfo* info) {
  auto listeners = std::make_shared<Listeners>(secret, rank, settings.encrypt);
  if (Status s = listeners->open(settings, allow_unix, allow_tcp, best, info); !s.is_ok()) return s;
  auto reconnector = std::make_shared<Reconnector>(secret, rank, settings.encrypt, listeners);
  return std::unique_ptr<Connector>(std::make_unique<SocketConnector>(settings, allow_unix, allow_tcp, 0, rank,
                                                                      std::vector<int>(), secret, std::move(listeners),
                                                                      std::move(reconnector)));
}

}  // namespace tutti::internal
