// Plans of one rank, without its peers.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "catch_compat.h"
#include "epoch/plans.h"
#include "transport/registry.h"
#include "transport/shm/costs.h"
#include "transport/tcp/costs.h"

namespace tutti::internal::test {

class RefusedLinks final : public MakingLinks {
 public:
  explicit RefusedLinks(Status why) : why_(std::move(why)) {}
  Result<State> advance() override { return why_; }
  Status block() override { return why_; }
  void rest() override {}
  std::vector<std::unique_ptr<transport::Link>> take() override { return {}; }
  Status explain(Status status) override { return status; }

 private:
  const Status why_;
};

// Counts the links that are requested, and fails on demand.
class CountingLinks final : public LinkMaker {
 public:
  explicit CountingLinks(std::unique_ptr<LinkMaker> inner) : inner_(std::move(inner)) {}
  std::unique_ptr<MakingLinks> begin(std::vector<int> peers, const FailureState& failure, Deadline deadline) override {
    asked.insert(asked.end(), peers.begin(), peers.end());
    if (!refusal.is_ok()) return std::make_unique<RefusedLinks>(refusal);
    return inner_->begin(std::move(peers), failure, deadline);
  }
  void watch_stalls(StallWatch*) override {}

  std::vector<int> asked;
  Status refusal;

 private:
  std::unique_ptr<LinkMaker> inner_;
};

// Ranks that are threads of one process, forced to `algorithm`; by default on one machine.
inline Membership threads(const std::vector<int>& machines, const std::string& algorithm, int rank = 0) {
  std::vector<PeerInfo> peers;
  for (const int machine : machines) {
    PeerInfo p;
    p.rank = static_cast<int>(peers.size());
    p.boot.fill(static_cast<std::uint8_t>(machine));
    RankSettings settings;
    settings.cpus.set();
    p.settings = settings.pack();
    peers.push_back(p);
  }
  Settings forced;
  forced.algorithm = algorithm;
  auto made = make_membership(rank, std::move(forced), std::move(peers), parse_transports("shm,tcp").value());
  REQUIRE(made.is_ok());
  return std::move(made).value();
}

// The plans of one rank of a job of threads, whose other ranks never come: links between threads wait for no peer.
struct Fixture {
  explicit Fixture(int ranks, const std::string& algorithm = "", std::int64_t timeout_ms = 60'000, int rank = 0,
                   ControlTree* tree = nullptr)
      : membership(threads(std::vector<int>(static_cast<std::size_t>(ranks), 1), algorithm, rank)) {
    // Requests for links to more ranks are refused.
    auto made = ThreadRanks::create(std::min(ranks, 64), membership.transports);
    REQUIRE(made.is_ok());
    thread_ranks = *made;
    waiter = std::make_unique<executor::Waiter>(thread_ranks->wakeup_fd(0), failure, false, 1000);
    links = std::make_unique<CountingLinks>(make_thread_links(thread_ranks, membership));
    plans = std::make_unique<Plans>(membership, ranks > 1 ? links.get() : nullptr, tree, failure, *waiter, timeout_ms);
  }
  const executor::Plan* make(Collective collective, int root, std::size_t bytes) const {
    auto made = plans->make(collective, root, bytes, &history);
    INFO(made.status().message());
    REQUIRE(made.is_ok());
    return *made;
  }

  Membership membership;
  FailureState failure;
  std::shared_ptr<ThreadRanks> thread_ranks;
  std::unique_ptr<executor::Waiter> waiter;
  std::unique_ptr<CountingLinks> links;
  mutable CallHistory history;
  std::unique_ptr<Plans> plans;
};

}  // namespace tutti::internal::test
