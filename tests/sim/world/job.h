// A job in a simulated world: each rank is a process that joins, watches its control tree, and leaves.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/failure.h"
#include "join/join.h"
#include "sim/world/world.h"

namespace tutti::internal::sim {

enum class Phase : std::uint8_t { kStarting, kJoining, kGathering, kWatching, kFinishing, kLeaving, kLeft };

// The fate of a rank.
struct RankRecord {
  Process* process = nullptr;
  Phase phase = Phase::kStarting;
  Status joined;  // of join() and the first all_gather()
  std::shared_ptr<FailureState> failure = std::make_shared<FailureState>();
  bool all_left = false;  // the result of finish()
  bool returned = false;  // the rank's program has ended
  std::int64_t returned_ms = 0;
  // The first error of either.
  [[nodiscard]] Status error() const { return joined.is_ok() ? failure->status() : joined; }
};

// The ranks that the text of an error names, as "rank 3". A rank that forwards an error is named before the others.
std::vector<int> ranks_named(const std::string& text);

class JobWorld {
 public:
  // `work(rank, job)`: a rank's actions between watching and leaving.
  using Work = std::function<void(int rank, Job* job)>;
  JobWorld(int ranks, const WorldOptions& options, Work work = {});

  [[nodiscard]] World& world() { return world_; }
  [[nodiscard]] RankRecord& rank(int rank) { return records_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] int ranks() const { return static_cast<int>(records_.size()); }
  // Until the programs of all ranks that were not killed have ended.
  bool run(std::int64_t limit_ms);
  // Until all living ranks are at least in this phase, or have ended.
  bool run_to(Phase phase, std::int64_t limit_ms);
  // The world's report, and each rank's texts.
  [[nodiscard]] std::string report();

 private:
  void live(int rank);
  Status join_job(int rank, Job* job);
  bool run_until_each(const std::function<bool(const RankRecord&)>& condition, std::int64_t limit_ms);

  const Work work_;
  std::vector<RankRecord> records_;
  std::optional<UniqueIdBytes> id_;  // rank 0 makes it
  Gate has_id_;
  World world_;
};

}  // namespace tutti::internal::sim
