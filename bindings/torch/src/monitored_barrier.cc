// A barrier that names the ranks which do not come. It goes through the store, as ranks that are stuck in a collective
// would not answer in the group's own connections.
#include <c10/util/Exception.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "backend.h"
#include "failure.h"

namespace tutti_torch {
namespace {

constexpr const char* kName = "monitored_barrier";
constexpr std::chrono::milliseconds kPause{5};
// Beside its timeout, for rank 0 to answer.
constexpr std::chrono::seconds kAnswer{1};

// Whether `key` is there before the deadline. Stores have waits of their own, some of which count in seconds.
bool comes(c10d::Store& store, const std::string& key, Clock::time_point deadline) {
  while (!store.check({key})) {
    if (Clock::now() >= deadline) return false;
    std::this_thread::sleep_for(kPause);
  }
  return true;
}

}  // namespace

void Backend::monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_all_ranks) {
  const auto timeout = opts.timeout == c10d::kUnsetTimeout ? timeout_.load() : opts.timeout;
  const Clock::time_point deadline = Clock::now() + timeout;
  const std::string prefix = "monitored_barrier/" + std::to_string(++monitored_barriers_) + "/";
  if (rank_ != 0) {
    static_cast<c10d::Store&>(*store_).set(prefix + std::to_string(rank_), std::vector<std::uint8_t>{1});
    // Rank 0 answers when its own deadline has passed, at the latest.
    if (!comes(*store_, prefix + "done", deadline + timeout + kAnswer)) {
      refuse(kName, c10::str(kTimedOut, "rank ", rank_, ": rank 0 has not answered within ", timeout.count(), " ms"));
    }
    const std::string missing = store_->get_to_str(prefix + "done");
    if (missing == "all") return;
    refuse(kName, c10::str(kTimedOut, "Rank ", rank_,
                           " successfully reached monitoredBarrier, but received errors while waiting ",
                           "for send/recv from rank 0: ", missing));
  }
  std::vector<int> missing;
  for (int rank = 1; rank < size_; ++rank) {
    if (comes(*store_, prefix + std::to_string(rank), deadline)) continue;
    missing.push_back(rank);
    if (!wait_all_ranks) break;
  }
  std::string what = "all";
  if (!missing.empty()) {
    what =
        c10::str(wait_all_ranks ? "Ranks " : "Rank ", c10::Join(", ", missing), " failed to pass monitoredBarrier in ",
                 timeout.count(), " ms (Rank 0 timed out in monitoredBarrier)");
  }
  static_cast<c10d::Store&>(*store_).set(prefix + "done", what);
  if (!missing.empty()) refuse(kName, kTimedOut + what);
}

}  // namespace tutti_torch
