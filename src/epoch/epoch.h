// The state on which the operations of a communicator run: its ranks, their connections, and the plans of their
// collectives. An epoch is constant after construction, except that plans and links are added when they are first
// needed. Another set of ranks is another epoch, which a split makes from this one.
//
// Threads: those that make it; then any, except waiter() and plans(), which are for the thread of the operations.
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
  // For a job that this rank has joined; join() must follow. `settings`: with rank 0's values. `thread_ranks` is
  // set if all ranks are threads of this process that were made together.
  Epoch(Job job, Settings settings, std::shared_ptr<ThreadRanks> thread_ranks);
  // For some ranks of `parent`: join_tree() and link() must follow.
  Epoch(const Epoch& parent, SplitGroup group);
  Epoch(const Epoch&) = delete;
  Epoch& operator=(const Epoch&) = delete;
  // Sends the leave notice of this rank.
  ~Epoch();

  // Collective: exchanges the descriptions of all ranks.
  Status join(Deadline deadline);

  // The two parts of a split. The first sends nothing to other ranks. `gives_up`: ControlTree::split().
  Status join_tree(const Epoch& parent, ControlTree::GivesUp gives_up);
  // `texts`: by rank, pack_settings() of the ranks with their own settings; or empty.
  Status link(const Epoch& parent, const std::vector<std::string>& texts);

  [[nodiscard]] int rank() const { return membership_.rank; }
  [[nodiscard]] int ranks() const { return membership_.ranks(); }
  // The settings at construction; once the epoch is made, with rank 0's values of those that rank 0 decides.
  [[nodiscard]] const Settings& settings() const { return membership_.settings; }
  [[nodiscard]] const Membership& membership() const { return membership_; }
  // Derived from the job's secret, and after a split also from the epoch's number.
  [[nodiscard]] const Secret& secret() const { return secret_; }
  [[nodiscard]] const std::shared_ptr<FailureState>& failure() const { return failure_; }
  // Tells this epoch from all others, and is the same on all of its ranks. Reveals nothing of the secret. Not 0.
  [[nodiscard]] std::uint64_t public_id() const;
  // Null for a single rank.
  [[nodiscard]] ControlTree* tree() const { return tree_.get(); }
  // Null for a single rank, and temporarily while it is being made.
  [[nodiscard]] LinkMaker* link_maker() const { return link_maker_.get(); }
  // Null for a single rank, and for ranks that need no connector.
  [[nodiscard]] Reconnector* reconnector() const {
    return connector_ != nullptr ? &connector_->reconnector() : nullptr;
  }
  // Connector::attend_listeners().
  bool attend_listeners() const { return connector_ != nullptr && connector_->attend_listeners(); }
  [[nodiscard]] executor::Waiter& waiter() const { return *waiter_; }
  [[nodiscard]] Plans& plans() const { return *plans_; }
  [[nodiscard]] ProcessRank& process_rank() const { return process_rank_; }
  // The calling thread runs this rank's operations.
  void touch() const {
    if (shares_process_) process_rank_.touch();
  }

  // Every rank's bytes, by rank. REQUIRES: the ranks are not watched yet (Failures::watch()).
  Result<std::vector<std::string>> all_gather(const std::string& own, Deadline deadline) const;
  // Sends the reason of this rank's failure to all others.
  void tell_peers(const Status& status) const {
    if (tree_ != nullptr) tree_->announce_failure(as_told_to_peers(status));
  }

  // For an epoch made from this one by a split: a unique number; a check of its settings, because it uses this epoch's
  // sockets and devices; and these settings in the form that ranks exchange.
  [[nodiscard]] std::uint64_t draw_id() const { return family_->next_id(); }
  [[nodiscard]] Status check_split(const Settings& wanted) const;
  [[nodiscard]] std::string pack_settings(const Settings& settings) const;

 private:
  Status make_wakeup_fd();
  Result<std::vector<PeerInfo>> exchange(const PeerInfo& mine, Deadline deadline);
  Status connect(Deadline deadline);
  // Returns the peers, with the data that this exchange has added to *self and to them.
  Result<std::vector<PeerInfo>> meet_across_namespaces(std::vector<PeerInfo> known, const Transports& transports,
                                                       PeerInfo* self, Deadline deadline);
  // Exchanges the descriptions of the transports with all ranks.
  Status tell_transports(PeerInfo* self, Deadline deadline);
  Result<Membership> membership_from(const Epoch& parent, const std::vector<std::string>& texts) const;
  // Through connector_, if there is one.
  Status make_link_maker();
  // Makes the parts that need the membership and the maker of links.
  void complete();
  [[nodiscard]] const transport::WakeupFd& wakeup_fd() const {
    return thread_ranks_ != nullptr ? thread_ranks_->wakeup_fd(rank()) : *own_wakeup_fd_;
  }

  Secret secret_{};
  std::string address_;  // Job::address
  std::shared_ptr<Family> family_;
  SplitGroup group_;  // empty: not from a split
  // Destroyed in reverse order: the tree's thread ends last, before the failure state that it writes. It calls no
  // witness any more, because the tree has left before everything else.
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
