// Agreements of the members of a communicator in a family (family.h), and what must hold for their results.
#pragma once

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "sim/world/family.h"

namespace tutti::internal::sim {

inline constexpr std::int64_t kPatienceMs = 60'000;
// Ranks die at once. A neighbour of the dead rank that dies as well makes the others look for the ranks below.
inline constexpr std::int64_t kBoundMs = 2'000;

inline std::uint64_t without(int rank) {
  return ~(std::uint64_t{1} << (rank % 64));
}

// One agreement of the members of a family's communicator, in which each clears the bit of its rank.
class Meeting {
 public:
  Meeting(Family* job, std::string call) : job_(*job), call_(std::move(call)) {}

  // Late members are a result, and members wait this long.
  void take_late(std::int64_t patience_ms) {
    takes_late_ = true;
    patience_ms_ = patience_ms;
  }
  // Starts a thread of the rank, which takes part. `leaves`: it leaves the communicator when it has the result.
  void enter(int rank, std::vector<int> excluded = {}, std::string call = {}, bool leaves = false) {
    Rank* const self = &job_.at(rank);
    ControlTree* const tree = self->part != nullptr ? self->part.get() : self->whole.get();
    entered_.push_back(rank);
    job_.world().start_thread(
        self->process, [results = results_, rank, self, tree, leaves, excluded, text = call.empty() ? call_ : call,
                        takes_late = takes_late_, patience_ms = patience_ms_] {
          const Proposal own{text, excluded, without(rank), "id of rank " + std::to_string(rank), takes_late};
          ++self->inside;
          results->insert_or_assign(rank, tree->agree(own, Deadline::after_ms(patience_ms), {}));
          if (leaves) tree->leave();
          --self->inside;
        });
  }
  void enter_all() {
    for (const int rank : job_.members()) enter(rank);
  }
  [[nodiscard]] bool is_over() const {
    const auto is_through = [this](int rank) { return job_.at(rank).process->dead || results_->contains(rank); };
    while (over_ < entered_.size() && is_through(entered_[over_])) ++over_;
    return over_ == entered_.size();
  }
  [[nodiscard]] const Result<Agreement>& of(int rank) const { return results_->at(rank); }
  [[nodiscard]] Status error_of(int rank) const { return results_->at(rank).status(); }

  // What is wrong with the results; empty: nothing. `held`: ranks that did not answer for a while, and may have failed.
  [[nodiscard]] std::string what_is_wrong(const std::vector<int>& held = {}) const {
    const std::vector<int>& members = job_.members();
    const Agreement* first = nullptr;
    const auto place = [&](int rank) {
      return static_cast<int>(std::find(members.begin(), members.end(), rank) - members.begin());
    };
    for (const int rank : members) {
      if (job_.at(rank).process->dead || is_in(held, rank)) continue;
      const auto at = results_->find(rank);
      if (at == results_->end()) return fmt::format("rank {} has no result", rank);
      if (!at->second.is_ok()) return fmt::format("rank {}: {}", rank, at->second.status().message());
      const Agreement& own = at->second.value();
      if (first == nullptr) first = &own;
      if (own.flags != first->flags || own.offer != first->offer || own.failed != first->failed) {
        return fmt::format("rank {} has another result", rank);
      }
    }
    if (first == nullptr) return {};
    for (const int rank : members) {
      const bool failed = is_in(first->failed, place(rank));
      const bool may_fail = job_.at(rank).process->dead || is_in(held, rank);
      if (failed && !may_fail) return fmt::format("the living rank {} counts as failed", rank);
      if (!failed && (first->flags & ~without(rank)) != 0) return fmt::format("rank {} did not contribute", rank);
      if (failed || !is_in(held, rank) || job_.at(rank).process->dead) continue;
      // It was held, but the others have waited for it.
      const auto at = results_->find(rank);
      if (at == results_->end() || !at->second.is_ok()) continue;  // it has been given up since
      if (at->second.value().flags != first->flags) return fmt::format("rank {} has another result", rank);
    }
    return {};
  }

 private:
  Family& job_;
  const std::string call_;
  bool takes_late_ = false;
  std::int64_t patience_ms_ = kPatienceMs;
  std::vector<int> entered_;
  mutable std::size_t over_ = 0;  // of these, how many have a result or are dead
  // The threads of ranks that are dead run to their ends after this.
  const std::shared_ptr<std::map<int, Result<Agreement>>> results_ =
      std::make_shared<std::map<int, Result<Agreement>>>();
};

inline std::vector<int> ranks_below(int ranks) {
  return all_but(ranks, {});
}

}  // namespace tutti::internal::sim
