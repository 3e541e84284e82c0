// The plans of one communicator, by (collective, order, root, size class): found by two array look-ups, made on
// first use (selection, schedule, links). A size class is the number of bits of the vector's byte count.
#pragma once

#include <array>
#include <bit>
#include <map>
#include <memory>
#include <vector>

#include "base/failure.h"
#include "communicator/call_history.h"
#include "communicator/links.h"
#include "communicator/membership.h"
#include "executor/plan.h"
#include "executor/waiter.h"
#include "os/clock.h"
#include "selection/select.h"

namespace tutti::internal {

class Plans {
 public:
  // All outlive the plans.
  Plans(const Membership& membership, LinkMaker* links, const FailureState& failure, executor::Waiter& waiter,
        std::int64_t timeout_ms);
  ~Plans();

  // Null if this class of calls has not been planned yet.
  [[nodiscard]] const executor::Plan* find(Collective collective, int root, std::size_t bytes,
                                           schedule::Order order = schedule::Order::kAny) const {
    const Row* row = rows_[row_of(collective, order)][static_cast<std::size_t>(root)].get();
    return row == nullptr ? nullptr : (*row)[static_cast<std::size_t>(std::bit_width(bytes))];
  }
  // A plan, or what links are missing, while it is being made.
  struct Making {
    const algorithms::AlgorithmEntry* entry = nullptr;  // null: only links are
    Collective collective = Collective::kAllReduce;
    int root = 0;
    std::size_t bytes = 0;
    schedule::Order order = schedule::Order::kAny;
    schedule::Schedule schedule;
    std::vector<int> peers;              // to whom there is no link yet
    std::unique_ptr<MakingLinks> links;  // null: there are all
  };
  // Selects, writes and where needed proves the schedule, and begins to connect to the peers that it names. Every rank
  // of the communicator does this in the same operation. `history`, if any, is told how the operation will be run
  // before anybody is waited for.
  Result<std::unique_ptr<Making>> begin(Collective collective, int root, std::size_t bytes, CallHistory* history,
                                        schedule::Order order = schedule::Order::kAny);
  // Whether it would have to prove the schedule, which may take long.
  [[nodiscard]] bool must_prove(Collective collective, int root, std::size_t bytes, schedule::Order order) const;
  // The links alone, of sends and receives. Null: there are all.
  std::unique_ptr<Making> begin_links(std::vector<int> peers);
  // Goes on, without waiting. After kMade it is to be found.
  Result<MakingLinks::State> advance(Making& making);
  // All of that, and waits.
  Result<const executor::Plan*> make(Collective collective, int root, std::size_t bytes, CallHistory* history,
                                     schedule::Order order = schedule::Order::kAny);
  // Whether make() would refuse such calls, since the algorithm that is forced for them does not serve these ranks or
  // does not keep the order.
  [[nodiscard]] Status check_forced(Collective collective, schedule::Order order) const;
  // Whether there is a link to the peer, or it is the rank itself.
  [[nodiscard]] bool is_connected(int peer) const { return peer == membership_.rank || links_.count(peer) != 0; }
  // Of sends and receives, which only the ranks that take part plan.
  Result<std::unique_ptr<executor::Plan>> plan_transfers(schedule::Schedule schedule);
  // Waits until the peers have all that was sent to them, but not beyond the deadline. What is not delivered then, or
  // when the communicator fails, never will be.
  void deliver(Deadline deadline);
  // Which algorithm make() would select or has selected, "ring over shm". Connects nothing.
  Result<std::string> describe(Collective collective, std::size_t bytes) const;
  // Behind that, if it is not an error: why, and what each candidate is predicted to take, the fastest first, a line
  // each.
  [[nodiscard]] std::vector<std::string> describe_choice(Collective collective, std::size_t bytes) const;

 private:
  using Row = std::array<const executor::Plan*, 65>;
  struct Planned {
    executor::PlanIdentity identity;  // known before the plan is made
    std::unique_ptr<executor::Plan> plan;
  };
  Result<const algorithms::AlgorithmEntry*> select(Collective collective, std::size_t bytes,
                                                   schedule::Order order) const;
  [[nodiscard]] const algorithms::World& world() const { return model_->world(); }
  static std::size_t row_of(Collective collective, schedule::Order order) {
    return static_cast<std::size_t>(collective) + (order == schedule::Order::kRanks ? kCollectives : 0);
  }
  [[nodiscard]] std::vector<int> unconnected(const schedule::Schedule& schedule) const;
  [[nodiscard]] std::unique_ptr<MakingLinks> begin_making(const std::vector<int>& peers) const;
  // Waits until they are made.
  Status connect(Making& making);
  void add_links(Making& making, std::vector<std::unique_ptr<transport::Link>> links);
  const executor::Plan* keep(Making& making);
  // The same on every rank.
  [[nodiscard]] std::size_t slice_bytes(Collective collective) const;
  Result<schedule::Schedule> write_schedule(const algorithms::AlgorithmEntry& entry, int root, Deadline deadline);
  Status prove(const algorithms::AlgorithmEntry& entry, int root, Deadline deadline) const;

  const Membership& membership_;
  LinkMaker* link_maker_;  // null for a single rank
  const FailureState& failure_;
  executor::Waiter& waiter_;
  const std::int64_t timeout_ms_;
  const selection::TunedJob* tuned_ = nullptr;  // of the membership's tuning; null: nothing was measured
  const std::shared_ptr<const selection::JobModel> model_;
  std::map<int, std::unique_ptr<transport::Link>> links_;  // by peer
  std::map<std::pair<const algorithms::AlgorithmEntry*, int>, Planned> plans_;
  std::array<std::vector<std::unique_ptr<Row>>, 2 * kCollectives> rows_;
};

}  // namespace tutti::internal
