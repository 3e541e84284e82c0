// How the tree closes the gaps that ranks leave: see socket_tree.h.
#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "bootstrap/control_comm.h"
#include "bootstrap/root_service.h"
#include "bootstrap/socket_tree.h"
#include "net/address.h"
#include "net/socket.h"

namespace tutti::internal::control {
namespace {

constexpr std::int64_t kMs = 1'000'000;
// Where a job ends, all leave at once, and none needs a new parent any more.
constexpr std::int64_t kPauseMs = 10;
constexpr std::int64_t kCandidateMs = 500;  // for one rank to answer, before the next is asked
constexpr std::int64_t kSearchMs = 5000;    // then this rank has no place any more
constexpr std::int64_t kAwaitMs = 8000;     // for another to say that it has found one; then it has died as well
constexpr std::size_t kFarewells = 64;      // of communicators that this rank has left

}  // namespace

int SocketTree::parent_of(int rank) const {
  const auto moved = attachments_.find(rank);
  if (moved != attachments_.end()) return moved->second.parent;
  return rank == 0 ? -1 : tree_parent(rank);
}

bool SocketTree::is_there(int rank) const {
  return !dead_.contains(rank) && !gone_.contains(rank);
}

// Where the tree has a place for this rank: the next ancestors, else the others that come before it, the first ones
// first.
std::vector<int> SocketTree::candidates() const {
  std::vector<int> result;
  for (int rank = rank_; rank > 0;) result.push_back(rank = tree_parent(rank));
  const std::set<int> ancestors(result.begin(), result.end());
  for (int rank = 0; rank < rank_; ++rank) {
    if (!ancestors.contains(rank)) result.push_back(rank);
  }
  std::erase_if(result, [&](int rank) { return !is_there(rank) || !contacts_.contains(rank); });
  return result;
}

// A rank that knows all its communicators to be over, and has nobody below it, needs no parent.
bool SocketTree::needs_parent() const {
  const bool has_children = std::any_of(neighbours_.begin(), neighbours_.end(),
                                        [](const Neighbour& n) { return !n.is_parent && n.socket.valid(); });
  return has_children ||
         std::any_of(comms_.begin(), comms_.end(), [](const auto& entry) { return !entry.second->is_over(); });
}

void SocketTree::look_for_parent() {
  if (departing_ || search_ || rank_ == 0) return;
  search_.emplace();
  search_->begin_ns = now_ns() + kPauseMs * kMs;
  search_->end_ns = search_->begin_ns + kSearchMs * kMs;
}

void SocketTree::prepare_search(net::PollSet* set) {
  if (!search_) return;
  Search& search = *search_;
  const std::int64_t now = now_ns();
  search.polled = search.socket.valid();
  if (search.polled) search.entry = set->add(search.socket.get(), POLLIN);
  if (search.dial) search.dial->prepare(set);
  const bool under_way = search.polled || search.dial != nullptr;
  const std::int64_t next_ns = under_way ? search.asked_ns + kCandidateMs * kMs : search.begin_ns;
  set->wake_at(Deadline::after_ms(std::max<std::int64_t>(0, next_ns - now + kMs - 1) / kMs));
}

void SocketTree::advance_search() {
  if (!search_ || now_ns() < search_->begin_ns) return;
  Search& search = *search_;
  if (search.dial) {
    search.dial->process(set_);
    if (search.dial->done()) {
      search.socket = search.dial->take();
      search.dial.reset();
      search.asked_ns = now_ns();  // the other side may have much to do
      search.shortage = {};
    } else if (search.dial->unreachable() || now_ns() >= search.asked_ns + kCandidateMs * kMs) {
      if (search.dial->lacks()) search.shortage = Status(Code::kSystemError, search.dial->trouble());
      search.dial.reset();
    }
  } else if (search.polled && set_.ready(search.entry) != 0) {
    Result<net::FrameReader::Progress> progress = search.welcome.read(search.socket.get());
    if (progress.is_ok() && *progress == net::FrameReader::Progress::kFrame) return attach();
    if (!progress.is_ok() || *progress == net::FrameReader::Progress::kClosed) search.socket.reset();
  } else if (search.socket.valid() && now_ns() >= search.asked_ns + kCandidateMs * kMs) {
    search.socket.reset();
  }
  if (!search.dial && !search.socket.valid()) ask_next();
}

// With nobody before it, this rank is the root.
void SocketTree::ask_next() {
  Search& search = *search_;
  if (search.left.empty()) {
    search.left = candidates();
    if (search.left.empty() || !needs_parent()) {
      search_.reset();
      return inquire_again();
    }
    if (now_ns() >= search.end_ns) return give_up();
    std::reverse(search.left.begin(), search.left.end());
    if (search.asked >= 0) search.begin_ns = now_ns() + kPauseMs * kMs;  // all have been asked once more
  }
  search.asked = search.left.back();
  search.left.pop_back();
  search.asked_ns = now_ns();
  search.welcome = net::FrameReader(0);
  if (!is_there(search.asked)) return;
  std::vector<net::Address> targets;
  for (const std::string& text : contacts_.at(search.asked).addresses) {
    if (Result<net::Address> address = net::parse_address(text); address.is_ok()) targets.push_back(*address);
  }
  const net::Claim claim{net::Purpose::kTree, rank_, 0, 1};
  if (!targets.empty()) search.dial = std::make_unique<net::Dial>(targets, secret_, claim, search.asked);
}

// None of those before this rank answers: they have died. If it is this rank that cannot ask, what its communicators
// hear is no longer what the others say.
void SocketTree::give_up() {
  const Search given_up = std::move(*search_);
  search_.reset();
  if (given_up.shortage.is_ok()) {
    for (const int rank : candidates()) {
      const Contact& contact = contacts_.at(rank);
      on_death({rank, contact.host, contact.pid}, nullptr);
    }
    return;
  }
  stand_aside(given_up.shortage.with_context(
      "this rank has lost its place in the control tree: its parent is gone, and another cannot be asked"));
}

// Under the rank that has welcomed this one. All are told, and so whoever hears of it says again what may have been
// lost with the last parent.
void SocketTree::attach() {
  const Contact& contact = contacts_.at(search_->asked);
  net::set_keep_alive(search_->socket.get());
  for (Neighbour& neighbour : neighbours_) {
    if (neighbour.is_parent) neighbour.socket.reset();
  }
  neighbours_.emplace_back(TreeNeighbour{contact.rank, true, contact.host, contact.pid, std::move(search_->socket)});
  search_.reset();
  tell_state(&neighbours_.back());
  const Attachment attachment{rank_, contact.rank, ++attached_};
  attachments_[rank_] = attachment;
  flood(pack_attachment(attachment), nullptr);
  say_again_ = true;
  inquire_again();
}

// Who is not there any more, and who has another parent than at first.
void SocketTree::tell_state(Neighbour* to) {
  for (const auto& [rank, death] : dead_) send(pack_death(death), to);
  for (const int rank : gone_) send(pack_bye(rank), to);
  for (const auto& [rank, attachment] : attachments_) send(pack_attachment(attachment), to);
}

// Ranks that have lost their parents.
void SocketTree::take_in() {
  if (!acceptor_) return;
  acceptor_->process(set_);
  for (net::Authenticated& connection : acceptor_->take()) {
    const int rank = connection.peer.rank;
    const auto contact = contacts_.find(rank);
    if (rank <= rank_ || contact == contacts_.end() || !is_there(rank)) continue;
    for (Neighbour& neighbour : neighbours_) {
      if (neighbour.rank == rank) neighbour.socket.reset();  // which it has given up
    }
    net::set_keep_alive(connection.socket.get());
    neighbours_.emplace_back(
        TreeNeighbour{rank, false, contact->second.host, contact->second.pid, std::move(connection.socket)});
    neighbours_.back().confirmed = false;
    send("", &neighbours_.back());
    tell_state(&neighbours_.back());
    if (parent() == nullptr) look_for_parent();
  }
}

void SocketTree::on_contact(Contact contact) {
  const int rank = contact.rank;
  contacts_.insert_or_assign(rank, std::move(contact));
}

void SocketTree::on_attachment(const Attachment& attachment, const std::string& frame, const Neighbour* from) {
  const auto known = attachments_.find(attachment.rank);
  if (known != attachments_.end() && known->second.count >= attachment.count) return;
  attachments_[attachment.rank] = attachment;
  awaited_.erase(attachment.rank);
  flood(frame, from);
  say_again_ = true;
  if (!is_there(attachment.parent)) await_again(attachment.rank);
}

// It has left for good.
void SocketTree::on_bye(int rank, const std::string& frame, Neighbour* from) {
  if (from->rank == rank) from->said_bye = true;
  if (!gone_.insert(rank).second) return;
  flood(frame, from);
  await_children_of(rank);
}

// Whoever was below a rank that is gone is to say where it is now. One that had no other neighbour may have died
// unseen.
void SocketTree::await_children_of(int gone) {
  awaited_.erase(gone);
  for (const int child : tree_children(gone, ranks_)) {
    if (parent_of(child) == gone) await_again(child);
  }
  for (const auto& [rank, attachment] : attachments_) {
    if (attachment.parent == gone) await_again(rank);
  }
}

void SocketTree::await_again(int rank) {
  if (rank != rank_ && is_there(rank) && !departing_) awaited_[rank] = now_ns() + kAwaitMs * kMs;
}

// Only a rank that has its own place can tell that another has none. The lowest of all never looks for one.
void SocketTree::judge_awaited() {
  if (search_) return;
  const std::int64_t now = now_ns();
  std::vector<int> lost;
  for (const auto& [rank, until_ns] : awaited_) {
    const bool may_be_root = std::none_of(contacts_.begin(), contacts_.lower_bound(rank),
                                          [&](const auto& entry) { return is_there(entry.first); });
    if (now >= until_ns && !may_be_root) lost.push_back(rank);
  }
  std::erase_if(awaited_, [&](const auto& entry) { return now >= entry.second; });
  for (const int rank : lost) {
    const auto contact = contacts_.find(rank);
    const Contact unknown{rank, "?", 0, {}};
    const Contact& of = contact == contacts_.end() ? unknown : contact->second;
    on_death({rank, of.host, of.pid}, nullptr);
  }
}

void SocketTree::wake_for_awaited(net::PollSet* set) const {
  if (search_) return;
  const std::int64_t now = now_ns();
  for (const auto& [rank, until_ns] : awaited_) {
    set->wake_at(Deadline::after_ms(std::max<std::int64_t>(0, until_ns - now + kMs - 1) / kMs));
  }
}

void SocketTree::say_again() {
  if (!std::exchange(say_again_, false)) return;
  for (const std::string& farewell : farewells_) flood(farewell, nullptr);
  for (const auto& [id, comm] : comms_) comm->say_again();
}

void SocketTree::keep_farewell(std::string frame) {
  farewells_.push_back(std::move(frame));
  if (farewells_.size() > kFarewells) farewells_.pop_front();
}

}  // namespace tutti::internal::control
