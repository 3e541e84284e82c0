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

// Tells the root who we are, or why we cannot take part.
Status register_with(int root, const Member& member, const std::vector<net::Address>& listening,
                     const Status& trouble) {
  Registration registration;
  registration.rank = member.rank;
  registration.ranks = member.ranks;
  registration.pid = static_cast<std::int32_t>(::getpid());
  registration.patience_ms = member.deadline.left_ms(INT_MAX);
  registration.host = host_name();
  registration.trouble = trouble.message();
  if (const auto process = process_token(); process.is_ok()) registration.process = process.value();
  for (const net::Address& address : listening) registration.addresses.push_back(address.text());
  return net::send_frame(root, registration.serialize(), member.deadline)
      .with_context("the root service (rank 0 or the maker of the unique id)");
}

// Waits for our place in the tree.
Result<Placement> await_placement(int root, const Member& member) {
  Result<std::string> answer = net::recv_frame(root, kMaxPlacementBytes, member.deadline);
  if (!answer.is_ok() && answer.status().code() == Code::kRemoteError) {
    return Status::remote(
        "the root service (in the process of rank 0, or of the maker of the unique id) ended before " +
        ("all ranks had joined: " + answer.status().message()));
  }
  if (!answer.is_ok()) {
    return answer.status().with_context("while waiting for the root service to have seen all ranks");
  }
  Result<Placement> placement = Placement::parse(*answer);
  if (placement.is_ok() && !placement->status.is_ok()) return placement->status;
  return placement;
}

// The connection to the root service between the placement and the moment at which this rank's part of the tree
// stands. Over it the root hears of this rank's end, and this rank of the others'.
class RootLine {
 public:
  RootLine(UniqueFd socket, std::string root_who) : socket_(std::move(socket)), root_who_(std::move(root_who)) {}

  void prepare(net::PollSet* set) {
    polled_ = socket_.valid();
    if (polled_) entry_ = set->add(socket_.get(), POLLIN);
  }
  // Why the job has failed, if the root says so.
  Status process(const net::PollSet& set);
  // The last word: how this rank's part of the tree has ended. Does not wait: it fits into any socket's buffer.
  void report(const Status& status);

 private:
  UniqueFd socket_;
  std::string root_who_;
  net::FrameReader reader_{kMaxPlacementBytes};
  std::size_t entry_ = 0;
  bool polled_ = false;
};

Status RootLine::process(const net::PollSet& set) {
  if (!polled_ || set.ready(entry_) == 0) return {};
  Result<net::FrameReader::Progress> progress = reader_.read(socket_.get());
  if (!progress.is_ok()) return progress.status();
  if (*progress == net::FrameReader::Progress::kFrame) {
    Result<Placement> word = Placement::parse(reader_.take());
    return word.is_ok() ? word->status : word.status();
  }
  if (*progress == net::FrameReader::Progress::kBlocked) return {};
  socket_.reset();
  // A maker of the id that is no rank has done its part.
  if (root_who_.empty()) return {};
  return Status::remote(root_who_ +
                        ", whose process runs the job's root, left or died while the ranks were being "
                        "connected");
}

void RootLine::report(const Status& status) {
  if (!socket_.valid()) return;
  net::FrameWriter writer;
  writer.queue(Report{as_told_to_peers(status)}.serialize());
  // A root that is gone needs no report.
  static_cast<void>(writer.flush(socket_.get()).is_ok());
  socket_.reset();
}

// The connections to the parent and the children, all at once. A parent welcomes its child by an empty frame: before
// that, the end of the connection says nothing, since the parent may not have looked at it. While it builds, deaths are
// heard of from the root, and from neighbours whose connections end: what they said before that is in the connection,
// for the tree to read.
class TreeBuilder {
 public:
  TreeBuilder(const Member& member, const Secret& secret, const Placement& placement)
      : member_(member),
        placement_(placement),
        children_(tree_children(member.rank, member.ranks)),
        claim_{net::Purpose::kTree, member.rank, 0, 1},
        acceptor_(secret, claim_),
        secret_(secret) {}

  Status build(UniqueFd listener, RootLine* root);
  // Whether build() has failed because of a neighbour that is gone, which is among neighbours().
  [[nodiscard]] bool neighbour_gone() const { return neighbour_gone_; }
  // Those that are connected; after a failure also a parent that has not welcomed this rank, but may know it.
  std::vector<TreeNeighbour> neighbours();

 private:
  Status begin(UniqueFd listener);
  Status dial_parent();
  Status meet_parent(const net::PollSet& set);
  void prepare(net::PollSet* set);
  Status process(const net::PollSet& set);
  Status place(net::Authenticated connection);
  [[nodiscard]] Status shortage() const;
  [[nodiscard]] Status timed_out() const;
  [[nodiscard]] std::vector<int> missing_children() const;

  const Member& member_;
  const Placement& placement_;
  std::vector<int> children_;
  net::Claim claim_;
  net::Acceptor acceptor_;
  Secret secret_;
  std::unique_ptr<net::Dial> dial_;  // to the parent, until that is connected
  UniqueFd parent_;                  // connected, but not yet welcome
  net::FrameReader welcome_{0};
  std::size_t parent_entry_ = 0;
  bool parent_polled_ = false;
  std::vector<TreeNeighbour> neighbours_;
  std::vector<std::size_t> entries_;  // of the first neighbours, as many as there were at prepare()
  bool neighbour_gone_ = false;
};

Status TreeBuilder::begin(UniqueFd listener) {
  if (placement_.children_who.size() != children_.size()) return Status::remote("the root's answer makes no sense");
  if (listener.valid()) acceptor_.add_listener(std::move(listener), false);
  return member_.rank > 0 ? dial_parent() : Status();
}

Status TreeBuilder::dial_parent() {
  std::vector<net::Address> targets;
  for (const std::string& text : placement_.parent_addresses) {
    Result<net::Address> address = net::parse_address(text);
    if (!address.is_ok()) return address.status().with_context("the root's answer");
    targets.push_back(*address);
  }
  dial_ = std::make_unique<net::Dial>(std::move(targets), secret_, claim_, tree_parent(member_.rank));
  return {};
}

Status TreeBuilder::build(UniqueFd listener, RootLine* root) {
  if (Status s = begin(std::move(listener)); !s.is_ok()) return s;
  net::PollSet set;
  while (dial_ || parent_.valid() || !missing_children().empty()) {
    set.clear(1000);
    set.wake_at(member_.deadline);
    prepare(&set);
    root->prepare(&set);
    if (Status s = set.wait(); !s.is_ok()) return s;
    if (Status s = process(set); !s.is_ok()) return s;
    if (Status s = root->process(set); !s.is_ok()) return s;
    if (Status s = shortage(); !s.is_ok()) return s;
    if (member_.deadline.passed()) return timed_out();
  }
  return {};
}

void TreeBuilder::prepare(net::PollSet* set) {
  acceptor_.prepare(set);
  if (dial_) dial_->prepare(set);
  parent_polled_ = parent_.valid();
  if (parent_polled_) parent_entry_ = set->add(parent_.get(), POLLIN);
  entries_.clear();
  // They may say something already, which is the tree's to read; only their end matters here.
  for (const TreeNeighbour& neighbour : neighbours_) entries_.push_back(set->add(neighbour.socket.get(), POLLRDHUP));
}

Status TreeBuilder::process(const net::PollSet& set) {
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    if (set.ready(entries_[i]) == 0) continue;
    neighbour_gone_ = true;
    return Status::remote(neighbours_[i].who + " is gone");
  }
  acceptor_.process(set);
  for (net::Authenticated& connection : acceptor_.take()) {
    if (Status s = place(std::move(connection)); !s.is_ok()) return s;
  }
  return meet_parent(set);
}

Status TreeBuilder::meet_parent(const net::PollSet& set) {
  if (dial_) {
    dial_->process(set);
    if (!dial_->done()) return {};
    parent_ = dial_->take();
    dial_.reset();
    return {};
  }
  if (!parent_polled_ || set.ready(parent_entry_) == 0) return {};
  Result<net::FrameReader::Progress> progress = welcome_.read(parent_.get());
  if (progress.is_ok() && *progress == net::FrameReader::Progress::kBlocked) return {};
  if (progress.is_ok() && *progress == net::FrameReader::Progress::kFrame) {
    neighbours_.push_back({tree_parent(member_.rank), true, placement_.parent_who, std::move(parent_)});
    return {};
  }
  // If the parent is no more, the root will say so.
  parent_.reset();
  welcome_ = net::FrameReader(0);
  return dial_parent();
}

std::vector<TreeNeighbour> TreeBuilder::neighbours() {
  if (parent_.valid()) {
    neighbours_.push_back({tree_parent(member_.rank), true, placement_.parent_who, std::move(parent_)});
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
  net::FrameWriter welcome;
  welcome.queue("");
  // An end that has come meanwhile is seen when the neighbours are polled.
  static_cast<void>(welcome.flush(connection.socket.get()).is_ok());
  const auto index = static_cast<std::size_t>(at - children_.begin());
  neighbours_.push_back({*at, false, placement_.children_who[index], std::move(connection.socket)});
  return {};
}

// Of descriptors or memory, for as long as somebody is still to be connected.
Status TreeBuilder::shortage() const {
  Status why = dial_ ? dial_->shortage() : Status();
  if (why.is_ok() && !missing_children().empty()) why = acceptor_.shortage();
  return why.with_context("connecting the control tree");
}

Status TreeBuilder::timed_out() const {
  std::string text = "timed out while connecting the control tree:";
  const bool no_parent = dial_ || parent_.valid();
  if (no_parent) {
    text += " no connection to " + placement_.parent_who + " (" + (dial_ ? dial_->trouble() : "no answer") + ")";
  }
  const std::vector<int> missing = missing_children();
  if (!missing.empty()) text += std::string(no_parent ? ";" : "") + " no connection from " + list_ranks(missing);
  return Status::timeout(text);
}

// Where the children connect; invalid for a rank without any.
Status open_listener(const Member& member, UniqueFd* listener, std::vector<net::Address>* listening) {
  if (tree_children(member.rank, member.ranks).empty()) return {};
  Result<UniqueFd> opened = net::listen_tcp(member.settings.port_low, member.settings.port_high);
  if (!opened.is_ok()) return opened.status();
  Result<std::vector<net::Address>> addresses = addresses_with_port_of(opened->get(), member.settings);
  if (!addresses.is_ok()) return addresses.status();
  *listener = std::move(opened).value();
  *listening = std::move(addresses).value();
  listening->resize(std::min(listening->size(), kMaxTreeAddresses));
  return {};
}

// Connects this rank's part of the tree, or tells those that it has met, and the root, why it has not.
Status connect_tree(const Member& member, const Secret& secret, const Placement& placement, UniqueFd listener,
                    UniqueFd root, Job* job) {
  RootLine line(std::move(root), placement.root_who);
  TreeBuilder builder(member, secret, placement);
  Status s = builder.build(std::move(listener), &line);
  auto tree = make_socket_tree(member.rank, member.ranks, builder.neighbours());
  if (s.is_ok()) {
    job->tree = std::move(tree);
  } else {
    // The gather reads what the neighbour that is gone has said last, and tells the others.
    if (builder.neighbour_gone()) s = tree->all_gather("", member.deadline).status();
    tree->announce_failure(as_told_to_peers(s));
    tree->leave();
  }
  line.report(s);
  return s;
}

// Everything after the root's addresses are known.
Result<Job> join_through(std::vector<net::Address> root, const Secret& secret, bool gone_means_dead,
                         const Member& member) {
  Job job;
  job.descriptors = reserve_descriptors(member.ranks, member.settings);
  const net::Claim claim{net::Purpose::kRoot, member.rank, 0, 1};
  net::Dial dial(std::move(root), secret, claim, -1);
  Result<UniqueFd> connection = finish_dial(&dial, "the job's root", gone_means_dead, member.deadline);
  if (!connection.is_ok()) return connection.status();
  UniqueFd listener;
  std::vector<net::Address> listening;
  const Status trouble = open_listener(member, &listener, &listening);
  const Status registered = register_with(connection->get(), member, listening, trouble);
  if (!trouble.is_ok()) return trouble;
  if (!registered.is_ok()) return registered;
  Result<Placement> placement = await_placement(connection->get(), member);
  if (!placement.is_ok()) return placement.status();
  job.rank = member.rank;
  job.ranks = member.ranks;
  Result<Secret> session = session_secret(secret, placement->nonce);
  if (!session.is_ok()) return session.status();
  job.secret = *session;
  if (member.ranks == 1) {
    RootLine(std::move(connection).value(), placement->root_who).report({});
    return job;
  }
  Status s = connect_tree(member, *session, *placement, std::move(listener), std::move(connection).value(), &job);
  if (!s.is_ok()) return s;
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

Status as_told_to_peers(const Status& status) {
  const Code code = status.code();
  const bool shared = status.is_ok() || code == Code::kRemoteError || code == Code::kTimeout ||
                      code == Code::kAborted || code == Code::kMismatch;
  return shared ? status : status.with_code(Code::kRemoteError);
}

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
