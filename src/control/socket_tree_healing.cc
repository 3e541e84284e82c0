// How the tree closes the gaps that ranks leave: see socket_tree.h.
#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "control/control_comm.h"
#include "control/socket_tree.h"
#include "control/tree_shape.h"
#include "net/address.h"
#include "net/socket.h"
#include "os/clock.h"

namespace tutti::internal::control {
namespace {

constexpr std::int64_t kMs = 1'000'000;
// Where a job ends, all leave at once, and none needs a new parent any more.
constexpr std::int64_t kPauseMs = 10;
constexpr std::int64_t kLongestPauseMs = 500;
constexpr std::int64_t kCandidateMs = 500;  // for one rank to answer
constexpr std::int64_t kNextMs = 20;        // before the next is asked as well: some 250 silent hosts can be passed by
// A rank whose host refuses connections for so long has died. One that has left is heard of by then: it listens until
// its leave notice is on its way.
constexpr std::int64_t kRefusedMs = 300;
// Soon after a leave notice a rank that refuses may have left as well: the ranks that would pass its notice on left
// with it, or died. It counts as dead after so long.
constexpr std::int64_t kLeavingMs = 5000;
// Before a rank is asked of which nothing is heard: almost all find another parent sooner. The root asks, so that a
// death costs one connection; the others only if the root does not, which is stopped perhaps.
constexpr std::int64_t kRootAsksMs = 100;
constexpr std::int64_t kAllAskMs = 8000;
constexpr std::ptrdiff_t kMostAsked = 64;    // at the same time
constexpr std::int64_t kAskMs = 1000;        // for the answer
constexpr std::int64_t kAskAgainMs = 1000;   // after it
constexpr std::int64_t kLongestMs = 10'000;  // between two questions to a rank that does not answer
constexpr std::uint16_t kSeeks = 0;          // a claim's index: this rank looks for a parent,
constexpr std::uint16_t kAsks = 1;           // or only asks whether the other one is there
constexpr std::size_t kFarewells = 64;       // of communicators that this rank has left

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
  const bool has_children = std::any_of(neighbours_.begin(), neighbours_.end(), [](const Neighbour& n) {
    return !n.is_parent && n.socket.valid() && !n.parting;
  });
  return has_children ||
         std::any_of(comms_.begin(), comms_.end(), [](const auto& entry) { return !entry.second->is_over(); });
}

bool SocketTree::has_parent() const {
  return std::any_of(neighbours_.begin(), neighbours_.end(), [](const Neighbour& neighbour) {
    return neighbour.is_parent && neighbour.socket.valid() && !neighbour.parting;
  });
}

void SocketTree::look_for_parent() {
  if (departing_ || search_ || rank_ == 0) return;
  search_.emplace();
  search_->begin_ns = now_ns() + kPauseMs * kMs;
  search_->end_ns = search_->begin_ns + silence_ms_ * kMs;
  search_->pause_ms = kPauseMs;
}

void SocketTree::prepare_search(net::PollSet* set) {
  if (!search_) return;
  const std::int64_t now = now_ns();
  const auto wake_at = [&](std::int64_t at_ns) {
    set->wake_at(Deadline::after_ms(std::max<std::int64_t>(0, at_ns - now + kMs - 1) / kMs));
  };
  for (Candidate& candidate : search_->asked) {
    candidate.polled = candidate.socket.valid();
    if (candidate.polled) candidate.entry = set->add(candidate.socket.get(), POLLIN);
    if (candidate.dial) candidate.dial->prepare(set);
    wake_at(candidate.since_ns + kCandidateMs * kMs);
  }
  const bool may_ask = search_->asked.empty() || (!search_->left.empty() && now < search_->end_ns);
  if (may_ask) wake_at(std::max(search_->begin_ns, search_->asked.empty() ? 0 : search_->next_ns));
}

void SocketTree::advance_search() {
  if (!search_ || now_ns() < search_->begin_ns) return;
  std::list<Candidate>& asked = search_->asked;
  for (auto at = asked.begin(); at != asked.end();) {
    Candidate& candidate = *at;
    const bool polled = candidate.polled && set_.ready(candidate.entry) != 0;
    if (polled) {
      Result<net::FrameReader::Progress> progress = candidate.welcome.read(candidate.socket.get());
      if (progress.is_ok() && *progress == net::FrameReader::Progress::kFrame) return attach(std::move(candidate));
      if (!progress.is_ok() || *progress == net::FrameReader::Progress::kClosed) candidate.socket.reset();
    }
    at = advance(&candidate) ? std::next(at) : asked.erase(at);
  }
  ask_more();
}

// A rank whose host has refused connections since then. It may have left instead if ranks have just left the job, or
// every communicator that this rank shares with it.
bool SocketTree::counts_as_dead(int rank, std::int64_t refused_ns) const {
  const std::int64_t now = now_ns();
  const std::int64_t recent_ns = now - kLeavingMs * kMs;
  const bool leaving = last_bye_ns_ > recent_ns || std::all_of(comms_.begin(), comms_.end(), [&](const auto& entry) {
                         return entry.second->may_have_left(rank, recent_ns);
                       });
  return now - refused_ns >= (leaving ? kLeavingMs : kRefusedMs) * kMs;
}

// False if the candidate is asked no longer.
bool SocketTree::advance(Candidate* candidate) {
  const bool late = now_ns() >= candidate->since_ns + kCandidateMs * kMs;
  if (candidate->dial) {
    candidate->dial->process(set_);
    if (candidate->dial->done()) {
      candidate->socket = candidate->dial->take();
      candidate->dial.reset();
      candidate->since_ns = now_ns();  // the other side may have much to do
      search_->shortage = {};
      return true;
    }
    const bool failed = candidate->dial->unreachable();
    if (!failed && !late) return true;
    const auto refused = search_->refused_ns.try_emplace(candidate->rank, now_ns()).first;
    if (!candidate->dial->gone_for(0)) {
      search_->refused_ns.erase(refused);
    } else if (counts_as_dead(candidate->rank, refused->second)) {
      const Contact& contact = contacts_.at(candidate->rank);
      on_death({candidate->rank, contact.host, contact.pid}, nullptr);
    }
    if (candidate->dial->lacks()) search_->shortage = Status(Code::kSystemError, candidate->dial->trouble());
    if (!failed) search_->silent.insert(contacts_.at(candidate->rank).host);
    return false;
  }
  if (candidate->socket.valid() && late) search_->silent.insert(contacts_.at(candidate->rank).host);
  return candidate->socket.valid() && !late;
}

// All once more. False if there is nobody to be asked: with nobody before it, this rank is the root.
bool SocketTree::fill_search() {
  search_->left = candidates();
  if (!search_->left.empty() && needs_parent()) return true;
  search_.reset();
  unheard_ = false;
  inquire_again();
  return false;
}

void SocketTree::ask_more() {
  Search& search = *search_;
  for (;;) {
    const std::int64_t now = now_ns();
    if (!search.asked.empty() && (now < search.next_ns || now >= search.end_ns || search.left.empty())) return;
    if (now >= search.end_ns) return give_up();
    if (search.left.empty() && std::exchange(search.asked_any, false)) {
      search.begin_ns = now + search.pause_ms * kMs;  // all have been asked
      search.pause_ms = std::min(search.pause_ms * 2, kLongestPauseMs);
      return;
    }
    if (search.left.empty() && !fill_search()) return;
    const auto next = std::find_if(search.left.begin(), search.left.end(),
                                   [&](int rank) { return !search.silent.contains(contacts_.at(rank).host); });
    const auto at = next == search.left.end() ? search.left.begin() : next;
    const int rank = *at;
    search.left.erase(at);
    search.asked_any = true;
    if (is_there(rank)) ask(rank);
  }
}

// Null: nobody has said where it listens.
std::unique_ptr<net::Dial> SocketTree::dial(int rank, std::uint16_t index) const {
  const auto contact = contacts_.find(rank);
  std::vector<net::Address> targets;
  if (contact == contacts_.end()) return nullptr;
  for (const std::string& text : contact->second.addresses) {
    if (Result<net::Address> address = net::parse_address(text); address.is_ok()) targets.push_back(*address);
  }
  if (targets.empty()) return nullptr;
  const net::Claim claim{net::Purpose::kTree, rank_, index, static_cast<std::uint16_t>(index + 1)};
  return std::make_unique<net::Dial>(targets, secret_, claim, rank);
}

void SocketTree::ask(int rank) {
  std::unique_ptr<net::Dial> dial = this->dial(rank, kSeeks);
  if (dial == nullptr) return;
  Candidate& candidate = search_->asked.emplace_back();
  candidate.rank = rank;
  candidate.since_ns = now_ns();
  candidate.dial = std::move(dial);
  search_->next_ns = candidate.since_ns + kNextMs * kMs;
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
void SocketTree::attach(Candidate candidate) {
  const Contact& contact = contacts_.at(candidate.rank);
  net::watch_silence(candidate.socket.get(), silence_ms_);
  for (Neighbour& neighbour : neighbours_) {
    if (neighbour.is_parent && !neighbour.parting) neighbour.close();
  }
  meet(contact.rank);
  neighbours_.emplace_back(TreeNeighbour{contact.rank, true, contact.host, contact.pid, std::move(candidate.socket)});
  search_.reset();
  unheard_ = false;
  tell_state(&neighbours_.back());
  const Attachment attachment{rank_, contact.rank, ++attached_};
  attachments_[rank_] = attachment;
  flood(pack_attachment(attachment), nullptr);
  say_again_ = true;
  inquire_again();
}

// What one that could not hear it may have missed; that a rank has left a communicator before that it has died.
void SocketTree::tell_state(Neighbour* to) {
  for (const Passed* passed : {&passed_, &passed_refusals_}) {
    for (const std::string& frame : passed->frames) send(frame, to);
  }
  for (const std::string& farewell : farewells_) send(farewell, to);
  for (const auto& [id, comm] : comms_) {
    for (const std::string& frame : comm->told()) send(frame, to);
  }
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
    // That the handshake has been done answers a rank that only asks.
    if (connection.peer.index == kAsks) continue;
    if (rank <= rank_ || contact == contacts_.end() || !is_there(rank)) continue;
    for (Neighbour& neighbour : neighbours_) {
      if (neighbour.rank == rank) neighbour.close();  // which it has given up
    }
    forget_owing(rank);
    meet(rank);
    net::watch_silence(connection.socket.get(), silence_ms_);
    neighbours_.emplace_back(
        TreeNeighbour{rank, false, contact->second.host, contact->second.pid, std::move(connection.socket)});
    neighbours_.back().confirmed = false;
    send("", &neighbours_.back());
    tell_state(&neighbours_.back());
    if (parent() == nullptr) look_for_parent();
  }
}

void SocketTree::on_attachment(const Attachment& attachment, const std::string& frame, const Neighbour* from) {
  const auto known = attachments_.find(attachment.rank);
  if (known != attachments_.end() && known->second.count >= attachment.count) return;
  attachments_[attachment.rank] = attachment;
  awaited_.erase(attachment.rank);
  for (const int rank : below(attachment.rank, false)) awaited_.erase(rank);
  if (attachment.parent != rank_) forget_owing(attachment.rank);
  flood(frame, from);
  say_again_ = true;
  if (!is_there(attachment.parent)) await_those_below(attachment.parent);
}

// It has left for good.
void SocketTree::on_bye(int rank, const std::string& frame, Neighbour* from) {
  if (from->rank == rank) {
    from->said_bye = true;
    if (!departing_) part_from(from);
  }
  if (!gone_.insert(rank).second) return;
  last_bye_ns_ = now_ns();
  // What it has said goes before it.
  pass_on_at_once();
  if (!job_is_over()) flood(frame, from);
  for (const auto& [id, comm] : comms_) comm->hear_bye(rank);
  await_those_below(rank);
}

void SocketTree::part_from(Neighbour* neighbour) {
  neighbour->parting = true;
  forget_owing(neighbour->rank);
  if (neighbour->is_parent) look_for_parent();
}

void SocketTree::forget_owing(int rank) {
  for (auto& [comm, round] : rounds_) round.owing.erase(rank);
}

// As far as this rank knows. past_lost: also those that are below one that is not there any more. Those below this rank
// are its neighbours' matter.
std::vector<int> SocketTree::below(int rank, bool past_lost) const {
  std::vector<int> result = {rank};
  for (std::size_t at = 0; at < result.size(); ++at) {
    const int parent = result[at];
    if (parent == rank_ || (at > 0 && !past_lost && !is_there(parent))) continue;
    for (const int child : tree_children(parent, ranks_)) {
      if (parent_of(child) == parent) result.push_back(child);
    }
    for (const auto& [moved, attachment] : attachments_) {
      const bool at_first = moved > 0 && tree_parent(moved) == parent;
      if (attachment.parent == parent && !at_first) result.push_back(moved);
    }
  }
  result.erase(result.begin());
  return result;
}

// Whoever was below a rank that is gone is to say where it is now. One that had no other neighbour may have died
// unseen, together with those below it: so these are awaited at the same time, until one above them is heard of.
void SocketTree::await_those_below(int gone) {
  awaited_.erase(gone);
  if (departing_) return;
  for (const int rank : below(gone, true)) await_again(rank);
}

void SocketTree::await_again(int rank) {
  if (rank == rank_ || !is_there(rank)) return;
  Awaited& awaited = awaited_[rank];
  awaited = {};
  awaited.since_ns = now_ns();
  awaited.pause_ms = kAskAgainMs;
}

// When a rank is to be asked next.
std::int64_t SocketTree::ask_ns(const Awaited& awaited) const {
  const std::int64_t first_ms = has_parent() ? kAllAskMs : kRootAsksMs;
  return std::max(awaited.not_before_ns, awaited.since_ns + first_ms * kMs);
}

void SocketTree::prepare_awaited(net::PollSet* set) {
  if (search_) return;
  const std::int64_t now = now_ns();
  for (auto& [rank, awaited] : awaited_) {
    const std::int64_t next_ns = awaited.dial ? awaited.asked_ns + kAskMs * kMs : ask_ns(awaited);
    // At once not even one that is due: the others that are asked come first.
    set->wake_at(Deadline::after_ms(std::max(kPauseMs, (next_ns - now + kMs - 1) / kMs)));
    if (awaited.dial) awaited.dial->prepare(set);
  }
}

// The lowest of all never looks for a parent.
void SocketTree::forget_root() {
  const auto root =
      std::find_if(contacts_.begin(), contacts_.end(), [&](const auto& entry) { return is_there(entry.first); });
  if (root == contacts_.end() || awaited_.erase(root->first) == 0) return;
  for (const int rank : below(root->first, false)) awaited_.erase(rank);
}

// Only a rank that has its own place can tell that another has none.
void SocketTree::judge_awaited() {
  if (search_ || awaited_.empty()) return;
  forget_root();
  std::vector<int> lost;
  auto asked =
      std::count_if(awaited_.begin(), awaited_.end(), [](const auto& entry) { return entry.second.dial != nullptr; });
  for (auto& [rank, awaited] : awaited_) {
    if (!awaited.dial && asked < kMostAsked && now_ns() >= ask_ns(awaited)) {
      begin_asking(rank, &awaited);
      ++asked;
    }
    if (is_lost(rank, &awaited)) lost.push_back(rank);
  }
  for (const int rank : lost) {
    awaited_.erase(rank);
    const auto contact = contacts_.find(rank);
    const Contact unknown{rank, "?", 0, {}};
    const Contact& of = contact == contacts_.end() ? unknown : contact->second;
    on_death({rank, of.host, of.pid}, nullptr);
  }
}

void SocketTree::begin_asking(int rank, Awaited* awaited) const {
  awaited->dial = dial(rank, kAsks);
  awaited->asked_ns = now_ns();
  if (!awaited->dial) awaited->not_before_ns = awaited->asked_ns + kLongestMs * kMs;
}

// By what the rank, or its host, has answered, or for want of an answer.
bool SocketTree::is_lost(int rank, Awaited* awaited) const {
  const std::int64_t now = now_ns();
  const auto pause = [&](std::int64_t ms) {
    awaited->dial.reset();
    awaited->not_before_ns = now + ms * kMs;
  };
  if (awaited->dial) {
    awaited->dial->process(set_);
    const bool refused = awaited->dial->gone_for(kRefusedMs);
    if (refused && awaited->refused_ns == 0) awaited->refused_ns = now - kRefusedMs * kMs;
    if (awaited->dial->done()) {  // it is alive, and has time to find a parent
      awaited->since_ns = now;
      awaited->refused_ns = 0;
      awaited->pause_ms = kAskAgainMs;
      pause(kAskAgainMs);
    } else if (refused && counts_as_dead(rank, awaited->refused_ns)) {
      return true;
    } else if (now >= awaited->asked_ns + kAskMs * kMs) {
      pause(awaited->pause_ms);
      awaited->pause_ms = std::min(awaited->pause_ms * 2, kLongestMs);
    }
  }
  return now >= awaited->since_ns + silence_ms_ * kMs;
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
