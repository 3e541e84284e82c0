// What the operations of a communicator run on: who its ranks are, how they are connected, and the plans of their
// collectives. An epoch does not change once it is made, but for the plans and links that are added when they are first
// needed. Another set of ranks is another epoch, which split() makes of this one.
//
// Threads: those that make it; then any, but for waiter() and plans(), which are for the thread of the operations.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/config.h"
#include "base/failure.h"
#include "base/status.h"
#include "control/control_tree.h"
#include "epoch/family.h"
#include "epoch/links.h"
#include "epoch/membership.h"
#include "epoch/plans.h"
#include "executor/waiter.h"
#include "join/job.h"
#include "join/process_rank.h"
#include "os/clock.h"
#include "transport/connections/connector.h"
#include "transport/wakeup_fd.h"

namespace tutti::internal {

class Epoch {
 public:
  // Of a job that this rank has joined; join() comes next. `settings`: with rank 0's transports. `thread_ranks` is set
  // if all ranks are threads of this process that were made together.
  Epoch(Job job, Settings settings, std::shared_ptr<ThreadRanks> thread_ranks);
  // Of some ranks of `parent`: join_tree() and link() come next.
  Epoch(const Epoch& parent, SplitGroup group);
  Epoch(const Epoch&) = delete;
  Epoch& operator=(const Epoch&) = delete;
  // Tells the others that this rank leaves.
  ~Epoch();

  // Collective: describes this rank to the others, and hears the same of them.
  Status join(Deadline deadline);

  // The two parts of a split. The first tells no other rank anything. `gives_up`: ControlTree::split().
  Status join_tree(const Epoch& parent, ControlTree::GivesUp gives_up);
  // `texts`: by rank, pack_settings() of those that have settings of their own; or none at all.
  Status link(const Epoch& parent, const std::vector<std::string>& texts);

  [[nodiscard]] int rank() const { return membership_.rank; }
  [[nodiscard]] int ranks() const { return membership_.ranks(); }
  // Those it was made with, and of those that rank 0 decides rank 0's.
  [[nodiscard]] const Settings& settings() const { return settings_; }
  [[nodiscard]] const Membership& membership() const { return membership_; }
  // Drawn from the job's secret, and from the epoch's own number where it comes from a split.
  [[nodiscard]] const Secret& secret() const { return secret_; }
  [[nodiscard]] const std::shared_ptr<FailureState>& failure() const { return failure_; }
  // Null for a single rank.
  [[nodiscard]] ControlTree* tree() const { return tree_.get(); }
  // The same; and null for a moment while it is made.
  [[nodiscard]] LinkMaker* link_maker() const { return link_maker_.get(); }
  [[nodiscard]] executor::Waiter& waiter() const { return *waiter_; }
  [[nodiscard]] Plans& plans() const { return *plans_; }
  [[nodiscard]] ProcessRank& process_rank() const { return process_rank_; }
  // The calling thread is the one that this rank's operations come from.
  void touch() const {
    if (shares_process_) process_rank_.touch();
  }

  // Every rank's bytes, by rank. Until the ranks are watched (Failures::watch()).
  Result<std::vector<std::string>> all_gather(const std::string& own, Deadline deadline) const;
  // Tells all others why this rank fails.
  void tell_peers(const Status& status) const {
    if (tree_ != nullptr) tree_->announce_failure(as_told_to_peers(status));
  }

  // For an epoch that comes from this one by a split: a number for it, drawn by no other rank, nor a second time;
  // whether it may have these settings, since it uses what this one has opened; and these settings as its ranks tell
  // them to each other.
  [[nodiscard]] std::uint64_t draw_id() const { return family_->next_id(); }
  [[nodiscard]] Status check_split(const Settings& settings) const;
  [[nodiscard]] std::string pack_settings(const Settings& settings) const;

 private:
  Status make_wakeup_fd();
  Result<std::vector<PeerInfo>> exchange(const PeerInfo& mine, Deadline deadline);
  Status connect(Deadline deadline);
  // The peers, with what that has added to *self and theirs.
  Result<std::vector<PeerInfo>> meet_across_namespaces(std::vector<PeerInfo> known, const Transports& transports,
                                                       PeerInfo* self, Deadline deadline);
  // Tells all others what the transports need to be told, and hears it from them.
  Status tell_transports(PeerInfo* self, Deadline deadline);
  // *transports: the parent's on entry; on return those that hold.
  Result<Membership> membership_from(const Epoch& parent, const std::vector<std::string>& texts,
                                     std::string* transports) const;
  // Through connector_, if there is one.
  void make_link_maker();
  // What needs the membership and the maker of links.
  void complete();
  [[nodiscard]] const transport::WakeupFd& wakeup_fd() const {
    return thread_ranks_ != nullptr ? thread_ranks_->wakeup_fd(rank()) : *own_wakeup_fd_;
  }

  Settings settings_;
  Secret secret_{};
  std::string address_;  // Job::address
  std::shared_ptr<Family> family_;
  SplitGroup group_;  // empty: it comes from no split
  // Destroyed in reverse order: the tree's thread last but for the failure state that it writes. It calls no witness
  // since the tree has left, before all else.
  std::shared_ptr<FailureState> failure_ = std::make_shared<FailureState>();
  std::unique_ptr<ControlTree> tree_;
  DescriptorReservation descriptors_;  // for as long as links may be made
  std::shared_ptr<ThreadRanks> thread_ranks_;
  std::optional<transport::WakeupFd> own_wakeup_fd_;  // unless thread_ranks_ has it; of the family
  Membership membership_;
  std::unique_ptr<executor::Waiter> waiter_;
  std::unique_ptr<Connector> connector_;  // null for threads that need none
  std::unique_ptr<LinkMaker> link_maker_;
  std::unique_ptr<Plans> plans_;
  mutable ProcessRank process_rank_;
  bool shares_process_ = false;  // with other ranks of the job
};

}  // namespace tutti::internal
