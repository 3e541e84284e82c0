#include "control/job_view.h"

#include <algorithm>
#include <utility>

#include "control/tree_shape.h"

namespace tutti::internal::control {

JobView::JobView(int ranks, Contact self) : rank_(self.rank), ranks_(ranks) {
  add_contact(std::move(self));
}

bool JobView::is_any_there() const {
  for (int rank = 0; rank < ranks_; ++rank) {
    if (is_there(rank)) return true;
  }
  return false;
}

bool JobView::add_bye(int rank, std::int64_t now_ns) {
  if (!gone_.insert(rank).second) return false;
  last_bye_ns_ = now_ns;
  return true;
}

void JobView::add_contact(Contact contact) {
  contact_ranks_.add(RankSet(contact.rank, contact.rank + 1));
  contacts_.insert_or_assign(contact.rank, std::move(contact));
}

const Contact* JobView::contact(int rank) const {
  const auto found = contacts_.find(rank);
  return found == contacts_.end() ? nullptr : &found->second;
}

Death JobView::death_of(int rank) const {
  const Contact* const known = contact(rank);
  return known != nullptr ? Death{rank, known->host, known->pid} : Death{rank, "?", 0};
}

bool JobView::add_attachment(const Attachment& attachment) {
  const auto known = attachments_.find(attachment.rank);
  if (known != attachments_.end() && known->second.count >= attachment.count) return false;
  attachments_[attachment.rank] = attachment;
  return true;
}

Attachment JobView::attach_self(int parent) {
  const Attachment attachment{rank_, parent, ++attached_};
  attachments_[rank_] = attachment;
  return attachment;
}

int JobView::root() const {
  const auto found =
      std::find_if(contacts_.begin(), contacts_.end(), [&](const auto& entry) { return is_there(entry.first); });
  return found == contacts_.end() ? -1 : found->first;
}

int JobView::lowest() const {
  int rank = 0;
  while (rank < rank_ && !is_there(rank)) ++rank;
  return rank;
}

// A parent has a lower rank than its child.
RankSet JobView::below_self() const {
  if (attachments_.empty()) return tree_below(rank_, ranks_);
  std::vector<bool> below(static_cast<std::size_t>(ranks_));
  return RankSet::where(ranks_, [&](int rank) {
    const int parent = parent_of(rank);
    return below[static_cast<std::size_t>(rank)] =
               rank == rank_ || (parent >= 0 && below[static_cast<std::size_t>(parent)]);
  });
}

std::vector<int> JobView::possible_parents() const {
  std::vector<int> result;
  for (int rank = rank_; rank > 0;) result.push_back(rank = tree_parent(rank));
  const std::set<int> ancestors(result.begin(), result.end());
  for (int rank = 0; rank < rank_; ++rank) {
    if (!ancestors.contains(rank)) result.push_back(rank);
  }
  std::erase_if(result, [&](int rank) { return !is_there(rank) || !contacts_.contains(rank); });
  return result;
}

std::vector<int> JobView::possible_receivers() const {
  std::vector<int> result = possible_parents();
  for (int rank = rank_ + 1; rank < ranks_; ++rank) {
    if (is_there(rank) && contacts_.contains(rank)) result.push_back(rank);
  }
  return result;
}

int JobView::parent_of(int rank) const {
  const auto moved = attachments_.find(rank);
  if (moved != attachments_.end()) return moved->second.parent;
  return rank == 0 ? -1 : tree_parent(rank);
}

std::vector<int> JobView::below(int rank, bool past_lost) const {
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

}  // namespace tutti::internal::control
