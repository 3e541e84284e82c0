#include "control/contact_exchange.h"

#include <algorithm>
#include <utility>

#include "control/tree_shape.h"
#include "os/clock.h"

namespace tutti::internal::control {

void ContactExchange::hear(std::vector<Contact> contacts, const Neighbour& from) {
  for (Contact& contact : contacts) {
    told_[from.rank].add(RankSet(contact.rank, contact.rank + 1));
    view_.add_contact(std::move(contact));
  }
  pass_on(false);
}

void ContactExchange::pass_on(bool at_once) {
  const bool complete = view_.knows_all_contacts();
  bool waits = false;
  for (Neighbour* const neighbour : neighbours_.listeners()) {
    RankSet& told = told_[neighbour->rank];
    if (told.contains(view_.contacts())) continue;
    const bool is_due = neighbour->is_parent && view_.contacts().contains(tree_below(view_.rank(), view_.ranks()));
    if (!at_once && !complete && !is_due) {
      waits = true;
      continue;
    }
    std::vector<Contact> contacts;
    view_.contacts().without(told).each([&](int rank) { contacts.push_back(*view_.contact(rank)); });
    neighbours_.send(pack_contacts(contacts), neighbour);
    told = view_.contacts();
  }
  if (!waits) {
    due_ns_ = 0;
  } else if (due_ns_ == 0) {
    due_ns_ = now_ns() + wait_ms_ * kNsPerMs;
  }
}

void ContactExchange::meet(int rank) {
  told_.erase(rank);
  if (view_.knows_all_contacts()) told_[rank] = view_.contacts();
}

void ContactExchange::advance(std::int64_t now_ns) {
  if (due_ns_ == 0 || now_ns < due_ns_) return;
  wait_ms_ = std::min(2 * wait_ms_, kLongestMs);
  pass_on(true);
}

}  // namespace tutti::internal::control
