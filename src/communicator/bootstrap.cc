#include "communicator/bootstrap.h"

#include <unistd.h>

#include <algorithm>
#include <climits>
#include <ctime>

#include "communicator/control_tree.h"
#include "communicator/rank_list.h"
#include "communicator/root_service.h"
#include "communicator/unique_id.h"
#include "net/acceptor.h"
#include "net/dial.h"
#include "net/frame.h"

namespace tutti {
namespace {

constexpr std::size_t kMaxTreeAddresses = 8;
constexpr std::size_t kOwnDescriptors = 24;  // the tree, listeners, what sleeps
constexpr std::size_t kMaxPlacementBytes = 64 << 10;
constexpr std::int64_t kResolveMs = 30'000;  // names of freshly started hosts take a while to appear
constexpr std::int64_t kRefusedMs = 5'000;   // a root that had been there and refuses this long is gone

struct Member {
  int rank;
  int ranks;
  const Settings& settings;
  Deadline deadline;
};

std::string host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "?";
}

Status check_rank(int rank, int ranks) {
  if (ranks < 1 || ranks > kMaxRanks) {
    return Status::invalid_argument("the number of ranks is " + std::to_string(ranks) + ", not in 1..1048576");
  }
  if (rank < 0 || rank >= ranks) {
    return Status::invalid_argument("rank " + std::to_string(rank) + " is outside of 0.." + std::to_string(ranks - 1));
  }
  return {};
}

Result<std::vector<net::Address>> addresses_with_port_of(int listener, const Settings& settings) {
  Result<net::Address> bound = net::local_address(listener);
  if (!bound.is_ok()) return bound.status();
  Result<std::vector<net::Address>> addresses = net::interface_addresses(settings.interface);
  if (!addresses.is_ok()) return addresses;
  for (net::Address& address : *addresses) address = address.with_port(bound->port());
  return addresses;
}

// Waits on `dial` until it has a connection. `gone_means_dead`: refusal for some time is final.
Result<UniqueFd> finish_dial(net::Dial* dial, const char* what, bool gone_means_dead, Deadline deadline) {
  net::PollSet set;
  for (;;) {
    set.clear(1000);
    set.wake_at(deadline);
    dial->prepare(&set);
    if (Status s = set.wait(); !s.is_ok()) return s;
    dial->process(set);
    if (dial->done()) return dial->take();
    if (!dial->shortage().is_ok()) return dial->shortage().with_context(std::string("connecting to ") + what);
    if (gone_means_dead && dial->refused_for(kRefusedMs)) {
      return Status::remote(std::string(what) + " cannot be reached: " + dial->trouble());
    }
    if (deadline.passed()) {
      return Status::timeout(std::string("timed out while looking for ") + what + ": " + dial->trouble());
    }
  }
}

// Tells the root who we are, and waits for our place in the tree.
Result<Placement> register_with(int root, const Member& member, const std::vector<net::Address>& listening) {
  Registration registration;
  registration.rank = member.rank;
  registration.ranks = member.ranks;
  registration.pid = static_cast<std::int32_t>(::getpid());
  registration.patience_ms = member.deadline.left_ms(INT_MAX);
  registration.host = host_name();
  for (const net::Address& address : listening) registration.addresses.push_back(address.text());
  Status s = net::send_frame(root, registration.serialize(), member.deadline);
  if (!s.is_ok()) return s.with_context("the root service (rank 0 or the maker of the unique id)");
  Result<std::string> answer = net::recv_frame(root, kMaxPlacementBytes, member.deadline);
  if (!answer.is_ok()) {
    return answer.status().with_context("while waiting for the root service to have seen all ranks");
  }
  Result<Placement> placement = Placement::parse(*answer);
  if (placement.is_ok() && !placement->status.is_ok()) return placement->status;
  return placement;
}

// The connections to the parent and the children, all at once.
class TreeBuilder {
 public:
  TreeBuilder(const Member& member, const Secret& secret, const Placement& placement)
      : member_(member),
        placement_(placement),
        children_(tree_children(member.rank, member.ranks)),
        claim_{net::Purpose::kTree, member.rank, 0, 1},
        acceptor_(secret, claim_),
        secret_(secret) {}

  Result<std::vector<TreeNeighbour>> build(UniqueFd listener);

 private:
  Status place(net::Authenticated connection);
  [[nodiscard]] Status shortage(const net::Dial* dial) const;
  [[nodiscard]] Status timed_out(const net::Dial* dial) const;
  [[nodiscard]] std::vector<int> missing_children() const;

  const Member& member_;
  const Placement& placement_;
  std::vector<int> children_;
  net::Claim claim_;
  net::Acceptor acceptor_;
  Secret secret_;
  std::vector<TreeNeighbour> neighbours_;
};

Result<std::vector<TreeNeighbour>> TreeBuilder::build(UniqueFd listener) {
  if (placement_.children_who.size() != children_.size()) return Status::remote("the root's answer makes no sense");
  if (listener.valid()) acceptor_.add_listener(std::move(listener), false);
  std::unique_ptr<net::Dial> dial;
  if (member_.rank > 0) {
    std::vector<net::Address> targets;
    for (const std::string& text : placement_.parent_addresses) {
      Result<net::Address> address = net::parse_address(text);
      if (!address.is_ok()) return address.status().with_context("the root's answer");
      targets.push_back(*address);
    }
    dial = std::make_unique<net::Dial>(std::move(targets), secret_, claim_, tree_parent(member_.rank));
  }
  net::PollSet set;
  while (dial || !missing_children().empty()) {
    set.clear(1000);
    set.wake_at(member_.deadline);
    acceptor_.prepare(&set);
    if (dial) dial->prepare(&set);
    if (Status s = set.wait(); !s.is_ok()) return s;
    acceptor_.process(set);
    for (net::Authenticated& connection : acceptor_.take()) {
      if (Status s = place(std::move(connection)); !s.is_ok()) return s;
    }
    if (dial) dial->process(set);
    if (dial && dial->done()) {
      neighbours_.push_back({tree_parent(member_.rank), true, placement_.parent_who, dial->take()});
      dial.reset();
    }
    if (Status s = shortage(dial.get()); !s.is_ok()) return s;
    if (member_.deadline.passed()) return timed_out(dial.get());
  }
  return std::move(neighbours_);
}

std::vector<int> TreeBuilder::missing_children() const {
  std::vector<int> missing;
  for (const int child : children_) {
    const auto is_child = [child](const TreeNeighbour& n) { return n.rank == child; };
    if (std::none_of(neighbours_.begin(), neighbours_.end(), is_child)) missing.push_back(child);
  }
  return missing;
}

Status TreeBuilder::place(net::Authenticated connection) {
  const auto at = std::find(children_.begin(), children_.end(), connection.peer.rank);
  if (at == children_.end()) return {};  // dropped: of this job, but not ours
  const auto missing = missing_children();
  if (std::find(missing.begin(), missing.end(), *at) == missing.end()) {
    return Status::remote("rank " + std::to_string(*at) + " connected twice");
  }
  const auto index = static_cast<std::size_t>(at - children_.begin());
  neighbours_.push_back({*at, false, placement_.children_who[index], std::move(connection.socket)});
  return {};
}

// Of descriptors or memory, for as long as somebody is still to be connected.
Status TreeBuilder::shortage(const net::Dial* dial) const {
  Status why = dial != nullptr ? dial->shortage() : Status();
  if (why.is_ok() && !missing_children().empty()) why = acceptor_.shortage();
  return why.with_context("connecting the control tree");
}

Status TreeBuilder::timed_out(const net::Dial* dial) const {
  std::string text = "timed out while connecting the control tree:";
  if (dial != nullptr) text += " no connection to " + placement_.parent_who + " (" + dial->trouble() + ")";
  const std::vector<int> missing = missing_children();
  if (!missing.empty()) text += std::string(dial != nullptr ? ";" : "") + " no connection from " + list_ranks(missing);
  return Status::timeout(text);
}

// Everything after the root's addresses are known.
Result<Job> join_through(std::vector<net::Address> root, const Secret& secret, bool gone_means_dead,
                         const Member& member) {
  Job job;
  job.descriptors = reserve_descriptors(member.ranks, member.settings);
  UniqueFd listener;
  std::vector<net::Address> listening;
  if (!tree_children(member.rank, member.ranks).empty()) {
    Result<UniqueFd> opened = net::listen_tcp(member.settings.port_low, member.settings.port_high);
    if (!opened.is_ok()) return opened.status();
    Result<std::vector<net::Address>> addresses = addresses_with_port_of(opened->get(), member.settings);
    if (!addresses.is_ok()) return addresses.status();
    listener = std::move(opened).value();
    listening = std::move(addresses).value();
    listening.resize(std::min(listening.size(), kMaxTreeAddresses));
  }
  const net::Claim claim{net::Purpose::kRoot, member.rank, 0, 1};
  net::Dial dial(std::move(root), secret, claim, -1);
  Result<UniqueFd> connection = finish_dial(&dial, "the job's root", gone_means_dead, member.deadline);
  if (!connection.is_ok()) return connection.status();
  Result<Placement> placement = register_with(connection->get(), member, listening);
  if (!placement.is_ok()) return placement.status();
  connection->reset();
  job.rank = member.rank;
  job.ranks = member.ranks;
  job.secret = secret;
  if (member.ranks == 1) return job;
  Result<std::vector<TreeNeighbour>> neighbours = TreeBuilder(member, secret, *placement).build(std::move(listener));
  if (!neighbours.is_ok()) return neighbours.status();
  job.tree = make_socket_tree(member.rank, member.ranks, std::move(neighbours).value());
  return job;
}

// With TUTTI_SECRET only those who know it can join; without, whoever knows the job's name.
Result<Secret> derive_secret(const std::string& job) {
  const std::string key = "tutti job secret, version 1:" + environment_variable("TUTTI_SECRET").value_or("");
  return net::hmac_sha256(key.data(), key.size(), job);
}

// Rank 0 opens the root on the first port that it gets. Returns addresses at which it reaches itself.
Result<std::vector<net::Address>> open_known_root(const KnownRoot& root, const Secret& secret, Deadline deadline) {
  Status why = Status::invalid_argument("no port is given for the job's root");
  for (const std::uint16_t port : root.ports) {
    Result<UniqueFd> listener = net::listen_tcp(port, port);
    if (!listener.is_ok()) {
      why = listener.status();
      continue;
    }
    if (Status s = start_root_service(std::move(listener).value(), secret, deadline); !s.is_ok()) return s;
    std::vector<net::Address> self;
    for (const char* text : {"127.0.0.1:0", "[::1]:0"}) {
      Result<net::Address> address = net::parse_address(text);
      if (address.is_ok()) self.push_back(address->with_port(port));
    }
    return self;
  }
  return why.with_context("rank 0 must open the job's root");
}

Result<std::vector<net::Address>> find_known_root(const KnownRoot& root, Deadline deadline) {
  const Deadline give_up = Deadline::after_ms(kResolveMs);
  Result<std::vector<net::Address>> found = net::resolve(root.host, 0);
  while (!found.is_ok()) {
    if (found.status().is_exhaustion() || deadline.passed() || give_up.passed()) {
      return found.status().with_context("the job's root");
    }
    const timespec pause{0, 200'000'000};
    ::nanosleep(&pause, nullptr);
    found = net::resolve(root.host, 0);
  }
  std::vector<net::Address> all;
  for (const std::uint16_t port : root.ports) {
    for (const net::Address& address : found.value()) all.push_back(address.with_port(port));
  }
  return all;
}

}  // namespace

// A link has a socket per stream, an epoll or a doorbell, and one more while it is set up.
DescriptorReservation reserve_descriptors(int ranks, const Settings& settings) {
  const auto per_link = static_cast<std::size_t>(std::max(2, settings.tcp_streams) + 2);
  return DescriptorReservation(kOwnDescriptors + static_cast<std::size_t>(ranks - 1) * per_link);
}

Result<UniqueIdBytes> create_unique_id(const Settings& settings) {
  RootContact contact;
  if (Status s = net::random_bytes(contact.secret.data(), contact.secret.size()); !s.is_ok()) return s;
  Result<UniqueFd> listener = net::listen_tcp(settings.port_low, settings.port_high);
  if (!listener.is_ok()) return listener.status();
  Result<std::vector<net::Address>> addresses = addresses_with_port_of(listener->get(), settings);
  if (!addresses.is_ok()) return addresses.status();
  contact.addresses = std::move(addresses).value();
  contact.addresses.resize(std::min(contact.addresses.size(), kMaxIdAddresses));
  Status s =
      start_root_service(std::move(listener).value(), contact.secret, Deadline::after_ms(settings.init_timeout_ms));
  if (!s.is_ok()) return s;
  return encode_unique_id(contact);
}

Result<Job> join(const UniqueIdBytes& id, int rank, int ranks, const Settings& settings, Deadline deadline) {
  Result<RootContact> contact = decode_unique_id(id);
  if (!contact.is_ok()) return contact.status();
  if (Status s = check_rank(rank, ranks); !s.is_ok()) return s;
  return join_through(std::move(contact->addresses), contact->secret, true, Member{rank, ranks, settings, deadline});
}

Result<Job> join(const KnownRoot& root, int rank, int ranks, const Settings& settings, Deadline deadline) {
  if (Status s = check_rank(rank, ranks); !s.is_ok()) return s;
  Result<Secret> secret = derive_secret(root.job);
  if (!secret.is_ok()) return secret.status();
  if (ranks == 1) {
    Job job;
    job.secret = *secret;
    return job;
  }
  Result<std::vector<net::Address>> where =
      rank == 0 ? open_known_root(root, *secret, deadline) : find_known_root(root, deadline);
  if (!where.is_ok()) return where.status();
  return join_through(std::move(where).value(), *secret, false, Member{rank, ranks, settings, deadline});
}

}  // namespace tutti
