// The job's ranks as one rank knows them: which have died or left, where each runs and listens, and the position of
// each in the control tree. State only: it sends nothing and waits for nothing. Every decision about ranks (deaths that
// a neighbour sees, leave notices, new parents) is recorded here once, and every part of the tree reads it here.
//
// Invariants: a rank that is dead or gone never comes back. A rank's attachments are numbered, and only a later one
// replaces an earlier one.
//
// Threads: the tree's only.
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
  // `self`: this rank's contact, for the others.
  JobView(int ranks, Contact self);

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int ranks() const { return ranks_; }
  // Whether it is neither dead nor gone for good.
  [[nodiscard]] bool is_there(int rank) const { return !dead_.contains(rank) && !gone_.contains(rank); }
  [[nodiscard]] bool is_any_there() const;

  // False if it is known already.
  bool add_death(const Death& death) { return dead_.emplace(death.rank, death).second; }
  bool add_bye(int rank, std::int64_t now_ns);
  [[nodiscard]] const std::map<int, Death>& dead() const { return dead_; }
  [[nodiscard]] const std::set<int>& gone() const { return gone_; }
  // When the last rank left the job.
  [[nodiscard]] std::int64_t last_bye_ns() const { return last_bye_ns_; }

  void add_contact(Contact contact);
  // Null: it is not known where the rank listens.
  [[nodiscard]] const Contact* contact(int rank) const;
  // The ranks whose contacts are known.
  [[nodiscard]] const RankSet& contacts() const { return contact_ranks_; }
  [[nodiscard]] bool knows_all_contacts() const { return contact_ranks_.size() == ranks_; }
  // The death of a rank, with its host and process if they are known.
  [[nodiscard]] Death death_of(int rank) const;

  // False if this one or a later one is known.
  bool add_attachment(const Attachment& attachment);
  // Of ranks that have changed their parent, by rank.
  [[nodiscard]] const std::map<int, Attachment>& attachments() const { return attachments_; }
  // This rank's next attachment, under `parent`.
  Attachment attach_self(int parent);

  // The lowest rank that is there and whose contact is known: it never looks for a parent. -1: there is none.
  [[nodiscard]] int root() const;
  // The lowest rank that is there: it becomes the root when the tree has healed.
  [[nodiscard]] int lowest() const;
  // This rank and all below it, also past ranks that are not there.
  [[nodiscard]] RankSet below_self() const;
  // The possible parents of this rank: the nearest ancestors first, then the other lower ranks, the lowest first.
  [[nodiscard]] std::vector<int> possible_parents() const;
  // The same, and then the higher ranks.
  [[nodiscard]] std::vector<int> possible_receivers() const;
  // The ranks below `rank` that this rank knows of. past_lost: also those below a rank that is gone. The ranks below
  // this rank are its neighbours' concern.
  [[nodiscard]] std::vector<int> below(int rank, bool past_lost) const;
  // As far as this rank knows. -1: it has no parent.
  [[nodiscard]] int parent_of(int rank) const;

 private:
  const int rank_;
  const int ranks_;
  std::map<int, Death> dead_;
  std::set<int> gone_;
  // An instant before every possible time.
  std::int64_t last_bye_ns_ = std::numeric_limits<std::int64_t>::min() / 2;
  std::map<int, Contact> contacts_;
  RankSet contact_ranks_;
  std::map<int, Attachment> attachments_;
  std::uint32_t attached_ = 0;  // how often this rank has changed its parent
};

}  // namespace tutti::internal::control
