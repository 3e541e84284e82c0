// One communicator's part of the job's control tree: a ControlTree with the communicator's own numbering. See
// control_tree.h for the interface, socket_tree.h for the transport of messages.
//
// Other threads leave commands here (comm_shared.h), which the tree's thread executes (comm_agent.h); only that thread
// sends and receives.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "control/comm_agent.h"
#include "control/comm_members.h"
#include "control/comm_shared.h"
#include "control/control_tree.h"
#include "os/mutex.h"

namespace tutti::internal::control {

class SocketTree;

class ControlComm final : public ControlTree {
 public:
  // `members`: their ranks in the job, by rank in this communicator; they include the tree's own rank. `parent`: the
  // communicator from which it is made, see ControlTree::split(). 0, and no `gives_up`, for the first.
  ControlComm(std::shared_ptr<SocketTree> tree, CommId id, std::vector<int> members, CommId parent = 0,
              GivesUp gives_up = {});
  ~ControlComm() override;

  // Called once, before everything else.
  Status enlist();

  using ControlTree::split;
  Result<std::unique_ptr<ControlTree>> split(std::uint64_t id, std::vector<int> members, GivesUp gives_up) override;
  Result<std::vector<std::string>> all_gather(const std::string& mine, Deadline deadline) override;
  Status watch(std::shared_ptr<FailureState> failure, Witness witness) override;
  void announce_failure(const Status& status) override;
  void report_calls(std::vector<CallRecord> calls) override;
  void report_refusal(const Refusal& refusal, std::int64_t wait_ms) override;
  void ask(Question question) override;
  void tell_decision(const std::string& decision) override;
  void tell_lasting_decision(int kind, const std::string& decision) override;
  Status compare_with_departed() override;
  void compare_calls() override;
  Result<Agreement> agree(const Proposal& own, Deadline deadline, const GivesUp& gives_up) override;
  [[nodiscard]] Result<RankSet> dead() const override;
  bool finish(std::int64_t wait_ms) override;
  void leave() override;

 private:
  // Whether the tree's thread listens and watch() was called.
  [[nodiscard]] bool takes_commands() const TUTTI_REQUIRES(shared_.mutex);
  // `write` changes the commands and wakes the tree's thread, if takes_commands().
  template <class Write>
  void command(Write write) TUTTI_EXCLUDES(shared_.mutex);
  bool look_again(Deadline deadline) TUTTI_REQUIRES(shared_.mutex);
  AgreementName next_agreement(const Proposal& own) TUTTI_REQUIRES(shared_.mutex);

  const std::shared_ptr<SocketTree> tree_;
  const CommMembers members_;
  const GivesUp gives_up_;  // called only during initialisation
  bool enlisted_ = false;   // constant after enlist()
  CommShared shared_;
  // The numbers of the next agreements, by series and the job ranks that are excluded.
  std::map<std::pair<std::uint32_t, std::vector<int>>, std::uint32_t> agreements_ TUTTI_GUARDED_BY(shared_.mutex);
  CommAgent agent_;
};

}  // namespace tutti::internal::control
