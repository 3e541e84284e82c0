#include "control/healing.h"

#include <algorithm>
#include <deque>
#include <utility>

#include "control/comm_agent.h"
#include "os/clock.h"

namespace tutti::internal::control {

Healing::Healing(JobView* view, Neighbours* neighbours, const CommTable& comms, const Agreements& agreements,
                 const KeptNotices& notices, const net::Secret& secret, Encryption encryption, std::int64_t silence_ms,
                 TreeEvents* events)
    : view_(*view),
      neighbours_(*neighbours),
      comms_(comms),
      notices_(notices),
      events_(*events),
      dialler_(*view, comms, agreements, secret, encryption),
      search_(*view, dialler_, silence_ms),
      awaited_(*view, dialler_, silence_ms) {}

void Healing::look_for_parent(bool at_once) {
  if (!stopped_) search_.begin(leaves_ ? DialPurpose::kTell : DialPurpose::kSeek, at_once);
}

void Healing::await_below(int gone) {
  if (!stopped_) awaited_.await_below(gone);
}

void Healing::ask_at_once(int rank) {
  if (!stopped_) awaited_.ask_at_once(rank);
}

void Healing::stop() {
  stopped_ = true;
  search_.stop();
  awaited_.clear();
}

void Healing::look_for_receiver() {
  stopped_ = false;
  leaves_ = true;
  look_for_parent();
}

// A rank whose communicators are all over, and that has no ranks below it, needs no parent.
bool Healing::needs_parent() const {
  return leaves_ || neighbours_.has_children() || !comms_.all_over();
}

// A rank that has become the root may have no ranks below it yet.
bool Healing::is_heard(bool over) {
  if (over && !unheard_) return true;
  if (search_.is_on()) return false;
  return awaited_.empty() || !neighbours_.listeners().empty();
}

void Healing::prepare(net::PollSet* set) {
  search_.prepare(set);
  if (!search_.is_on()) awaited_.prepare(set, !neighbours_.has_parent());
}

// Only a rank that has its own place can decide that another has none.
void Healing::advance(const net::PollSet& set) {
  if (search_.is_on()) advance_search(set);
  if (search_.is_on()) return;
  for (const int rank : awaited_.judge(set, !neighbours_.has_parent())) {
    events_.on_death(view_.death_of(rank), nullptr);
  }
}

void Healing::advance_search(const net::PollSet& set) {
  std::vector<int> dead;
  std::optional<ParentSearch::Parent> found = search_.read(set, &dead);
  for (const int rank : dead) events_.on_death(view_.death_of(rank), nullptr);
  if (found) return attach(std::move(*found));
  switch (search_.ask(needs_parent())) {
    case ParentSearch::State::kOn: return;
    case ParentSearch::State::kNobody: unheard_ = false; return events_.on_placed();
    case ParentSearch::State::kSilent:
      if (leaves_) return;
      for (const int rank : view_.possible_parents()) events_.on_death(view_.death_of(rank), nullptr);
      return;
    case ParentSearch::State::kUnable:
      // Its communicators would miss messages of the other ranks.
      return events_.on_no_place(search_.shortage().with_context(
          "this rank has lost its place in the control tree: its parent is gone, and another cannot be asked"));
  }
}

// Makes the rank that has welcomed this one its parent.
void Healing::attach(ParentSearch::Parent found) {
  const Contact& contact = *view_.contact(found.rank);
  for (Neighbour& neighbour : neighbours_.all()) {
    if (neighbour.is_parent && !neighbour.parting) neighbour.close();
  }
  events_.on_new_neighbour(contact.rank);
  Neighbour& parent =
      neighbours_.add(TreeNeighbour{contact.rank, true, contact.host, contact.pid, std::move(found.stream)});
  unheard_ = false;
  tell_state(&parent);
  if (leaves_) return;  // the ranks below look for another parent
  neighbours_.flood(pack_attachment(view_.attach_self(contact.rank)), nullptr);
  resends_ = true;
  events_.on_placed();
}

// Sends everything that the neighbour may have missed. A rank's leave notice in a communicator comes before its death.
void Healing::tell_state(Neighbour* to) {
  for (const std::deque<std::string>* frames :
       {&notices_.parts(), &notices_.passed(), &notices_.refusals(), &notices_.farewells()}) {
    for (const std::string& frame : *frames) neighbours_.send(frame, to);
  }
  for (const auto& [id, comm] : comms_.all()) {
    for (const std::string& frame : comm->told()) neighbours_.send(frame, to);
  }
  for (const auto& [rank, death] : view_.dead()) neighbours_.send(pack_death(death), to);
  for (const int rank : view_.gone()) neighbours_.send(pack_bye(rank), to);
  for (const auto& [rank, attachment] : view_.attachments()) neighbours_.send(pack_attachment(attachment), to);
}

void Healing::take_in(std::vector<net::Authenticated> connections) {
  for (net::Authenticated& connection : connections) {
    const int rank = connection.peer.rank;
    const auto purpose = static_cast<DialPurpose>(connection.peer.index);
    const Contact* const contact = view_.contact(rank);
    if (purpose == DialPurpose::kQuery || contact == nullptr || !view_.is_there(rank)) continue;
    if (purpose == DialPurpose::kSeek && rank <= view_.rank()) continue;
    for (Neighbour& neighbour : neighbours_.all()) {
      if (neighbour.rank == rank) neighbour.close();  // the rank has given up that connection
    }
    events_.on_new_neighbour(rank);
    Neighbour& child =
        neighbours_.add(TreeNeighbour{rank, false, contact->host, contact->pid, std::move(connection.stream)});
    child.confirmed = false;
    if (view_.parent_of(rank) == view_.rank()) awaited_.found(rank);
    neighbours_.send("", &child);
    tell_state(&child);
    if (neighbours_.parent() == nullptr) look_for_parent();
  }
}

bool Healing::hear_attachment(const Attachment& attachment, const std::string& frame, const Neighbour* from) {
  if (!view_.add_attachment(attachment)) return false;
  awaited_.found(attachment.rank);
  neighbours_.flood(frame, from);
  resends_ = true;
  if (!view_.is_there(attachment.parent)) await_below(attachment.parent);
  return true;
}

void Healing::resend() {
  if (!std::exchange(resends_, false)) return;
  for (const std::string& frame : notices_.recent()) neighbours_.flood(frame, nullptr);
  for (const auto& [id, comm] : comms_.all()) comm->say_again();
}

}  // namespace tutti::internal::control
