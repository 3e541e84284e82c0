// The plans of one communicator, by (collective, order, root, size class): found by two array look-ups, made on
// first use (selection, schedule, links). A size class is the number of bits of the vector's byte count.
#pragma once

#include <array>
#include <bit>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "base/failure.h"
#include "epoch/call_history.h"
#include "epoch/decisions.h"
#include "epoch/links.h"
#include "epoch/membership.h"
#include "executor/plan.h"
#include "executor/waiter.h"
#include "os/clock.h"
#include "selection/select.h"

namespace tutti::internal {

// The requirement of a call on its algorithm.
enum class Demand : std::uint8_t {
  kNone,
  kRankOrder,  // combines in the order of ranks
  // Connects each rank to O(log n) others: the exchange of a split must not connect all ranks with each other, although
  // that is fastest for a few bytes.
  kFewPeers,
};
constexpr int kDemands = 3;

class Plans {
 public:
  // All outlive the plans.
  Plans(const Membership& membership, LinkMaker* links, ControlTree* tree, const FailureState& failure,
        executor::Waiter& waiter, std::int64_t timeout_ms);
  ~Plans();

  // Null if this class of calls has not been planned yet.
  [[nodiscard]] const executor::Plan* find(Collective collective, int root, std::size_t bytes,
                                           Demand demand = Demand::kNone) const {
    const auto& rows = rows_[row_of(collective, demand)];
    const Row* row =
        static_cast<std::size_t>(root) < rows.size() ? rows[static_cast<std::size_t>(root)].get() : nullptr;
    return row == nullptr ? nullptr : (*row)[static_cast<std::size_t>(std::bit_width(bytes))];
  }
  // A plan, or missing links, while they are being made.
  struct Making {
    const algorithms::AlgorithmEntry* entry = nullptr;  // null: only links are
    Collective collective = Collective::kAllReduce;
    int root = 0;
    std::size_t bytes = 0;
    Demand demand = Demand::kNone;
    schedule::Schedule schedule;
    std::vector<int> peers;              // peers without a link
    std::unique_ptr<MakingLinks> links;  // null: all links exist
  };
  // Selects and writes the schedule, proves it if needed, and begins to connect to its peers. Every rank of the
  // communicator does this in the same operation. Stores the plan in `history`, if given, before it waits for another
  // rank.
  Result<std::unique_ptr<Making>> begin(Collective collective, int root, std::size_t bytes, CallHistory* history,
                                        Demand demand = Demand::kNone);
  // Whether it may take long: if it has to prove the schedule, or to wait for rank 0's decision.
  [[nodiscard]] bool takes_long(Collective collective, int root, std::size_t bytes,
                                Demand demand = Demand::kNone) const;
  [[nodiscard]] const selection::JobModel& model() const { return *model_; }
  [[nodiscard]] Decisions& decisions() { return decisions_; }
  // Only the links, for sends and receives. Null: all exist.
  std::unique_ptr<Making> begin_links(std::vector<int> peers);
  // Continues without waiting. After kMade, find() returns the plan.
  Result<MakingLinks::State> advance(Making& making);
  // begin() and advance(), with waiting.
  Result<const executor::Plan*> make(Collective collective, int root, std::size_t bytes, CallHistory* history,
                                     Demand demand = Demand::kNone);
  // Whether make() would refuse such calls, because the forced algorithm does not support these ranks or does not keep
  // the order.
  [[nodiscard]] Status check_forced(Collective collective, schedule::Order order) const;
  // Whether there is a link to the peer, or it is the rank itself.
  [[nodiscard]] bool is_connected(int peer) const { return peer == membership_.rank || links_.count(peer) != 0; }
  // Between operations.
  void each_link(const std::function<void(int peer, transport::Link& link)>& visit) const {
    for (const auto& [peer, link] : links_) visit(peer, *link);
  }
  // For sends and receives, which only the participating ranks plan.
  Result<std::unique_ptr<executor::Plan>> plan_transfers(schedule::Schedule schedule);
  // Waits until the peers have received everything that was sent to them, at most until the deadline. Data that is not
  // delivered then, or when the communicator fails, is lost.
  void deliver(Deadline deadline);
  // The algorithm that make() would select or has selected, "ring over shm". Connects nothing.
  Result<std::string> describe(Collective collective, std::size_t bytes) const;
  // The lines after that, if it is not an error: the reason, and the predicted time of each candidate, the fastest
  // first.
  [[nodiscard]] std::vector<std::string> describe_choice(Collective collective, std::size_t bytes) const;

 private:
  using Row = std::array<const executor::Plan*, 65>;
  struct Planned {
    executor::PlanIdentity identity;  // known before the plan is made
    std::unique_ptr<executor::Plan> plan;
  };
  Result<const algorithms::AlgorithmEntry*> select(Collective collective, std::size_t bytes,
                                                   schedule::Order order) const;
  // The same, or rank 0's selection, which has the same result.
  Result<const algorithms::AlgorithmEntry*> agree(Collective collective, std::size_t bytes, Demand demand,
                                                  Deadline deadline);
  // The choice without a prediction, or rank 0's decision; null: neither.
  Result<const algorithms::AlgorithmEntry*> known(Collective collective, std::size_t bytes, Demand demand) const;
  // For rank 0's decision: whether it supports these ranks in this order.
  [[nodiscard]] bool serves(const algorithms::AlgorithmEntry* entry, schedule::Order order) const;
  [[nodiscard]] const algorithms::World& world() const { return model_->world(); }
  static std::size_t row_of(Collective collective, Demand demand) {
    return static_cast<std::size_t>(collective) + static_cast<std::size_t>(demand) * kCollectives;
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
  // Only on rank 0 for all ranks, unless it is late.
  Status check(const algorithms::AlgorithmEntry& entry, int root, Deadline deadline);
  Status prove(const algorithms::AlgorithmEntry& entry, int root, Deadline deadline) const;

  const Membership& membership_;
  LinkMaker* link_maker_;  // null for a single rank
  const FailureState& failure_;
  executor::Waiter& waiter_;
  const std::int64_t timeout_ms_;
  const selection::TunedJob* tuned_ = nullptr;  // from the membership's tuning; null: no measurements
  const std::shared_ptr<const selection::JobModel> model_;
  Decisions decisions_;
  std::map<int, std::unique_ptr<transport::Link>> links_;  // by peer
  std::map<std::pair<const algorithms::AlgorithmEntry*, int>, Planned> plans_;
  std::array<std::vector<std::unique_ptr<Row>>, kDemands * kCollectives>
      rows_;  // by root, up to the last that was used
};

}  // namespace tutti::internal
