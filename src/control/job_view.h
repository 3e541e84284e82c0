// The job's ranks as one rank knows them: which have died or left, where each runs and listens, and where each stands
// in the control tree. State only: it sends nothing and waits for nothing. Whatever decides about ranks (deaths that a
// neighbour sees, leave notices, new parents) is written here once, and every part of the tree reads it here.
//
// Invariants: a rank that is dead or gone never comes back. A rank's attachments are numbered, and only a later one
// replaces one.
//
// Threads: the tree's alone.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <set>
#include <vector>

#include "control/control_messages.h"
#include "control/rank_set.h"

namespace tutti::internal::control {

class JobView {
 public:
  // `self`: what others must know of this rank.
  JobView(int ranks, Contact self);

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int ranks() const { return ranks_; }
  // Neither dead nor gone for good.
  [[nodiscard]] bool is_there(int rank) const { return !dead_.contains(rank) && !gone_.contains(rank); }

  // False if it is known.
  bool add_death(const Death& death) { return dead_.emplace(death.rank, death).second; }
  bool add_bye(int rank, std::int64_t now_ns);
  [[nodiscard]] const std::map<int, Death>& dead() const { return dead_; }
  [[nodiscard]] const std::set<int>& gone() const { return gone_; }
  // When the last rank left the job.
  [[nodiscard]] std::int64_t last_bye_ns() const { return last_bye_ns_; }

  void add_contact(Contact contact);
  // Null: nobody has said where it listens.
  [[nodiscard]] const Contact* contact(int rank) const;
  // Whose are known.
  [[nodiscard]] const RankSet& contacts() const { return contact_ranks_; }
  [[nodiscard]] bool knows_all_contacts() const { return contact_ranks_.size() == ranks_; }
  // The death of a rank, as far as it is known where it ran.
  [[nodiscard]] Death death_of(int rank) const;

  // False if it is known, or a later one is.
  bool add_attachment(const Attachment& attachment);
  // Of ranks that have another parent than at first, by rank.
  [[nodiscard]] const std::map<int, Attachment>& attachments() const { return attachments_; }
  // The next one of this rank, under `parent`.
  Attachment attach_self(int parent);

  // The lowest rank that is there and whose contact is known: it never looks for a parent. -1: none.
  [[nodiscard]] int root() const;
  // Under which this rank may be: the next ancestors, else the others that come before it, the lowest first.
  [[nodiscard]] std::vector<int> possible_parents() const;
  // As far as this rank knows. past_lost: also those that are below one that is not there any more. Those below this
  // rank are its neighbours' matter.
  [[nodiscard]] std::vector<int> below(int rank, bool past_lost) const;

 private:
  // -1: it has none.
  [[nodiscard]] int parent_of(int rank) const;

  const int rank_;
  const int ranks_;
  std::map<int, Death> dead_;
  std::set<int> gone_;
  // No clock has been at this beginning.
  std::int64_t last_bye_ns_ = std::numeric_limits<std::int64_t>::min() / 2;
  std::map<int, Contact> contacts_;
  RankSet contact_ranks_;
  std::map<int, Attachment> attachments_;
  std::uint32_t attached_ = 0;  // how often this rank has got another parent
};

}  // namespace tutti::internal::control
