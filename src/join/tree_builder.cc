#include "join/tree_builder.h"

#include <fmt/core.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/rank_list.h"
#include "control/socket_tree.h"
#include "join/wait_notices.h"
#include "net/acceptor.h"
#include "net/dial.h"
#include "net/frame.h"
#include "net/socket.h"

namespace tutti::internal {
namespace {

constexpr std::int64_t kLastWordMs = 1000;  // it has already arrived: microseconds
// A parent that can run answers in milliseconds.
constexpr std::int64_t kParentsWordMs = 5000;
constexpr const char* kTimedOut = "timed out while connecting the control tree: ";  // and on whom this rank waits
// The limit of a neighbour's bytes before this rank's part of the tree is connected: for every rank some announcements
// of a few hundred bytes, and the longest texts.
constexpr std::size_t kEarlyBytes = std::size_t{64} << 20;
constexpr std::size_t kEarlyBytesPerRank = std::size_t{16} << 10;
constexpr int kFramesPerRound = 256;  // from one neighbour, before the others are polled

// The connection to the root service from the placement until this rank's part of the tree is connected. It shows the
// root the end of this rank, and carries failures of the others to this rank.
class RootLine {
 public:
  RootLine(net::ByteStream stream, std::string root_who) : stream_(std::move(stream)), root_who_(std::move(root_who)) {}

  void prepare(net::PollSet* set) {
    polled_ = stream_.valid();
    if (polled_) entry_ = set->add(stream_, POLLIN);
  }
  // The error of the job, if the root has sent one.
  Status process(const net::PollSet& set);
  // The last message: the result of connecting this rank's part of the tree. Does not wait: it fits into any socket's
  // buffer.
  void report(const Status& status);

 private:
  net::ByteStream stream_;
  std::string root_who_;
  net::FrameReader reader_{kMaxPlacementBytes};
  std::size_t entry_ = 0;
  bool polled_ = false;
};

Status RootLine::process(const net::PollSet& set) {
  if (!polled_ || set.ready(entry_) == 0) return {};
  Result<net::FrameReader::Progress> progress = reader_.read(&stream_);
  if (!progress.is_ok()) return progress.status();
  if (*progress == net::FrameReader::Progress::kFrame) {
    Result<Placement> word = Placement::parse(reader_.take());
    return word.is_ok() ? word->status : word.status();
  }
  if (*progress == net::FrameReader::Progress::kBlocked) return {};
  stream_.reset();
  // If the maker of the id is not a rank, its process may end now.
  if (root_who_.empty()) return {};
  return Status::remote(
      root_who_ + ", whose process runs the job's root service, left or died while the ranks were being connected");
}

void RootLine::report(const Status& status) {
  if (!stream_.valid()) return;
  net::FrameWriter writer;
  writer.queue(Report{as_told_to_peers(status)}.serialize());
  // A root that has ended needs no report.
  static_cast<void>(writer.flush(&stream_).is_ok());
  stream_.reset();
}

// Makes the connections to the parent and the children, all at the same time. A parent confirms its child with an empty
// frame. Before that, the end of the connection means nothing, because the parent may not have processed it. During the
// building, the root and the ends of neighbours' connections show deaths; earlier messages of these neighbours are kept
// for the tree.
class TreeBuilder {
 public:
  // `listening`: the addresses for the children, for messages.
  TreeBuilder(const Member& member, const Secret& secret, Encryption encryption, const Placement& placement,
              const std::vector<std::string>& listening)
      : member_(member),
        placement_(placement),
        listening_(listening),
        children_(tree_children(member.rank, member.ranks)),
        claim_{net::Purpose::kTree, member.rank, 0, 1, 0, encryption},
        acceptor_(secret, claim_),
        secret_(secret) {}

  Status build(UniqueFd listener, RootLine* root);
  // Whether build() has failed because a neighbour has ended; that neighbour is in neighbours().
  [[nodiscard]] bool neighbour_gone() const { return neighbour_gone_; }
  // After a failure, before neighbours(): waits for the confirmation of a parent that may already rely on this rank.
  // Otherwise the parent would take the end of the connection for this rank's death.
  void await_parent();
  // The connected neighbours; after a failure also a parent that has not confirmed this rank, but may know it.
  std::vector<TreeNeighbour> neighbours();
  // Why the parent cannot be reached; empty if it can. For the messages of ranks that time out: any of them may be the
  // first to give up, and this one may have the best information.
  [[nodiscard]] std::string trouble() const;
  // After all else.
  net::Acceptor acceptor() { return std::move(acceptor_); }

 private:
  Status begin(UniqueFd listener);
  Status dial_parent();
  Status meet_parent(const net::PollSet& set);
  void prepare(net::PollSet* set);
  [[nodiscard]] std::size_t most_early_bytes() const;
  bool read_from(TreeNeighbour* neighbour) const;
  [[nodiscard]] Status judge(const TreeNeighbour& neighbour) const;
  Status process(const net::PollSet& set);
  void keep_parent();
  Status place(net::Authenticated connection);
  [[nodiscard]] Status shortage() const;
  [[nodiscard]] std::string waited_for() const;
  [[nodiscard]] std::vector<int> missing_children() const;

  const Member& member_;
  const Placement& placement_;
  const std::vector<std::string>& listening_;
  std::vector<int> children_;
  net::Claim claim_;
  net::Acceptor acceptor_;
  Secret secret_;
  std::unique_ptr<net::Dial> dial_;  // to the parent, until that is connected
  net::ByteStream parent_;           // connected, but not yet confirmed
  net::FrameReader welcome_{0};
  std::size_t parent_entry_ = 0;
  bool parent_polled_ = false;
  std::vector<TreeNeighbour> neighbours_;
  std::vector<std::size_t> entries_;  // of the first neighbours, as many as there were at prepare()
  bool neighbour_gone_ = false;
};

Status TreeBuilder::begin(UniqueFd listener) {
  if (placement_.children.size() != children_.size()) {
    return Status::remote(fmt::format("protocol error: the root service names {} children of this rank, which has {}",
                                      placement_.children.size(), children_.size()));
  }
  if (listener.valid()) acceptor_.add_listener(std::move(listener), false);
  return member_.rank > 0 ? dial_parent() : Status();
}

Status TreeBuilder::dial_parent() {
  std::vector<net::Address> targets;
  for (const std::string& text : placement_.parent_addresses) {
    Result<net::Address> address = net::parse_address(text);
    if (!address.is_ok()) return address.status().with_context("the root service's answer");
    targets.push_back(*address);
  }
  dial_ = std::make_unique<net::Dial>(std::move(targets), secret_, claim_, tree_parent(member_.rank));
  return {};
}

Status TreeBuilder::build(UniqueFd listener, RootLine* root) {
  if (Status s = begin(std::move(listener)); !s.is_ok()) return s;
  net::PollSet set;
  WaitNotices notices(member_.settings);
  while (dial_ || parent_.valid() || !missing_children().empty()) {
    notices.look([this](const std::string& waited) {
      return fmt::format("rank {} of {} has waited {} for the control tree: {}", member_.rank, member_.ranks, waited,
                         waited_for());
    });
    set.clear(1000);
    set.wake_at(member_.deadline);
    prepare(&set);
    root->prepare(&set);
    if (Status s = set.wait(); !s.is_ok()) return s;
    if (Status s = process(set); !s.is_ok()) return s;
    if (Status s = root->process(set); !s.is_ok()) return s;
    if (Status s = shortage(); !s.is_ok()) return s;
    if (member_.deadline.passed()) {
      return Status::timeout(kTimedOut + waited_for());
    }
  }
  return {};
}

void TreeBuilder::prepare(net::PollSet* set) {
  acceptor_.prepare(set);
  if (dial_) dial_->prepare(set);
  parent_polled_ = parent_.valid();
  if (parent_polled_) parent_entry_ = set->add(parent_, POLLIN);
  entries_.clear();
  for (const TreeNeighbour& neighbour : neighbours_) entries_.push_back(set->add(neighbour.stream, POLLIN));
}

std::size_t TreeBuilder::most_early_bytes() const {
  return kEarlyBytes + kEarlyBytesPerRank * static_cast<std::size_t>(member_.ranks);
}

// A neighbour's messages are for the tree, but are read at once, so that neither a neighbour with many messages nor
// this rank has to wait for room in the connection. False: the neighbour has ended.
bool TreeBuilder::read_from(TreeNeighbour* neighbour) const {
  for (int frames = 0; frames < kFramesPerRound && neighbour->heard_bytes <= most_early_bytes(); ++frames) {
    Result<net::FrameReader::Progress> progress = neighbour->reader.read(&neighbour->stream);
    if (!progress.is_ok() || *progress == net::FrameReader::Progress::kClosed) return false;
    if (*progress == net::FrameReader::Progress::kBlocked) return true;
    neighbour->heard.push_back(neighbour->reader.take());
    neighbour->heard_bytes += neighbour->heard.back().size() + sizeof(std::string);
  }
  return true;
}

Status TreeBuilder::judge(const TreeNeighbour& neighbour) const {
  const std::size_t most = most_early_bytes();
  if (neighbour.heard_bytes <= most) return {};
  return Status::remote(
      fmt::format("protocol error: {} sent {} bytes before the control tree was connected, and at most {} are kept",
                  describe_rank(neighbour.rank, neighbour.host, neighbour.pid), neighbour.heard_bytes, most));
}

Status TreeBuilder::process(const net::PollSet& set) {
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    if (set.ready(entries_[i]) == 0) continue;
    const bool there = read_from(&neighbours_[i]);
    if (Status s = judge(neighbours_[i]); !s.is_ok()) return s;
    if (there) continue;
    neighbour_gone_ = true;
    const TreeNeighbour& gone = neighbours_[i];
    return Status::remote(describe_rank(gone.rank, gone.host, gone.pid) + " is gone");
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
  Result<net::FrameReader::Progress> progress = welcome_.read(&parent_);
  if (progress.is_ok() && *progress == net::FrameReader::Progress::kBlocked) return {};
  if (progress.is_ok() && *progress == net::FrameReader::Progress::kFrame) {
    keep_parent();
    return {};
  }
  // If the parent has ended, the root will report it.
  parent_.reset();
  welcome_ = net::FrameReader(0);
  return dial_parent();
}

void TreeBuilder::await_parent() {
  const Deadline deadline = Deadline::after_ms(kParentsWordMs);
  net::PollSet set;
  while (dial_ && dial_->proven() && !deadline.passed()) {
    set.clear(1);
    set.wake_at(deadline);
    dial_->prepare(&set);
    if (!set.wait().is_ok()) return;
    dial_->process(set);
    if (!dial_->done()) continue;
    parent_ = dial_->take();
    dial_.reset();
  }
}

std::vector<TreeNeighbour> TreeBuilder::neighbours() {
  if (parent_.valid()) keep_parent();
  return std::move(neighbours_);
}

void TreeBuilder::keep_parent() {
  const RankPlace& place = placement_.parent;
  neighbours_.push_back({tree_parent(member_.rank), true, place.host, place.pid, std::move(parent_)});
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
  // Dropped: a rank of this job that is not a child, or that only checks whether this one is alive.
  if (at == children_.end() || connection.peer.count != claim_.count) return {};
  const auto missing = missing_children();
  if (std::find(missing.begin(), missing.end(), *at) == missing.end()) {
    return Status::remote(fmt::format("rank {} connected twice", *at));
  }
  net::FrameWriter welcome;
  welcome.queue("");
  // If the connection has ended, polling the neighbours will show it.
  static_cast<void>(welcome.flush(&connection.stream).is_ok());
  const auto index = static_cast<std::size_t>(at - children_.begin());
  const RankPlace& place = placement_.children[index];
  neighbours_.push_back({*at, false, place.host, place.pid, std::move(connection.stream)});
  return {};
}

// A shortage of descriptors or memory, as long as some neighbour is not connected.
Status TreeBuilder::shortage() const {
  Status why = dial_ ? dial_->shortage() : Status();
  if (why.is_ok() && !missing_children().empty()) why = acceptor_.shortage();
  return why.with_context("connecting the control tree");
}

std::string TreeBuilder::trouble() const {
  if (!dial_ || !dial_->all_failed()) return {};
  const std::string parent = describe_rank(tree_parent(member_.rank), placement_.parent.host, placement_.parent.pid);
  return fmt::format("rank {} cannot connect to {}: {}", member_.rank, parent, dial_->trouble());
}

// The awaited neighbours, with addresses.
std::string TreeBuilder::waited_for() const {
  std::string text;
  if (dial_ || parent_.valid()) {
    const std::string parent = describe_rank(tree_parent(member_.rank), placement_.parent.host, placement_.parent.pid);
    text = fmt::format("no connection to {} ({})", parent, dial_ ? dial_->trouble() : "no answer");
  }
  const std::vector<int> missing = missing_children();
  if (missing.empty()) return text;
  if (!text.empty()) text += "; ";
  std::string addresses;
  for (const std::string& address : listening_) addresses += (addresses.empty() ? "" : ", ") + address;
  return text + fmt::format(
                    "no connection from {}, which has the addresses {} of this rank. Check that it can reach one of "
                    "them, or choose others with TUTTI_INTERFACE",
                    list_ranks(missing), addresses);
}

// After a neighbour has ended: processes the last messages of the neighbours, and the end last.
Status hear_last(ControlTree* tree, const Status& otherwise) {
  const Status heard = tree->all_gather("", Deadline::after_ms(kLastWordMs)).status();
  return heard.is_ok() || heard.code() == Code::kTimeout ? otherwise : heard;
}

}  // namespace

Status connect_tree(const Member& member, const Secret& secret, Encryption encryption, const Registration& registration,
                    const Placement& placement, UniqueFd listener, net::ByteStream root, Job* job) {
  RootLine line(std::move(root), placement.root_who);
  if (member.ranks == 1) {
    line.report({});
    return {};
  }
  TreeBuilder builder(member, secret, encryption, placement, registration.addresses);
  Status s = builder.build(std::move(listener), &line);
  const std::string trouble = builder.trouble();
  const bool heard = s.code() == Code::kTimeout && !s.message().starts_with(kTimedOut);
  if (heard && !trouble.empty()) s = Status::timeout(s.message() + "; " + trouble);
  if (!s.is_ok()) builder.await_parent();
  TreeSeed seed{member.rank,          member.ranks,     silence_limit_ms(member.settings),
                builder.neighbours(), secret,           encryption,
                registration.host,    registration.pid, registration.addresses,
                builder.acceptor()};
  Result<std::unique_ptr<ControlTree>> tree = make_socket_tree(std::move(seed));
  if (s.is_ok() && tree.is_ok()) {
    job->tree = std::move(tree).value();
  } else if (tree.is_ok()) {
    if (builder.neighbour_gone()) s = hear_last(tree->get(), s);
    (*tree)->announce_failure(as_told_to_peers(s));
    (*tree)->leave();
  } else if (s.is_ok()) {
    s = tree.status();
  }
  line.report(s);
  return s;
}

}  // namespace tutti::internal
