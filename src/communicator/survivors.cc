#include "communicator/survivors.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/rank_list.h"
#include "communicator/communicator.h"

namespace tutti::internal {
namespace {

std::vector<int> joined(const std::vector<int>& a, const std::vector<int>& b) {
  std::vector<int> both;
  std::set_union(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(both));
  return both;
}

std::vector<int> all_but(int ranks, const std::vector<int>& left_out) {
  std::vector<int> rest;
  for (int rank = 0; rank < ranks; ++rank) {
    if (!std::binary_search(left_out.begin(), left_out.end(), rank)) rest.push_back(rank);
  }
  return rest;
}

}  // namespace

// Marks that a thread is inside a call.
class Survivors::Inside {
 public:
  explicit Inside(std::atomic<bool>* mark) : mark_(mark->exchange(true) ? nullptr : mark) {}
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;
  ~Inside() {
    if (mark_ != nullptr) *mark_ = false;
  }
  [[nodiscard]] Status status() const {
    return mark_ != nullptr ? Status()
                            : Status::invalid_usage(
                                  "another thread is inside tuttiCommShrink or tuttiCommAgree of this communicator. "
                                  "Call them from one thread at a time");
  }

 private:
  std::atomic<bool>* const mark_;  // null: another thread is inside
};

Result<Agreement> Survivors::agree(const Proposal& own, Deadline deadline) {
  const Inside inside(&inside_);
  if (!inside.status().is_ok()) return inside.status();
  return agree_inside(own, deadline);
}

Result<Agreement> Survivors::agree_inside(const Proposal& own, Deadline deadline) {
  if (failures_.is_finalized()) return Status::invalid_usage("the communicator is finalized");
  if (epoch_.tree() == nullptr) return Agreement{own.flags, own.offer, {}};
  auto agreed = epoch_.tree()->agree(own, deadline, [this]() -> Status {
    return failures_.is_aborted() ? Status::aborted("the communicator has been aborted") : Status();
  });
  if (agreed.is_ok()) {
    const MutexLock lock(mutex_);
    failed_ = joined(failed_, agreed->failed);
  }
  return agreed;
}

std::vector<int> Survivors::failed() const {
  const MutexLock lock(mutex_);
  return failed_;
}

// First the members agree on the ones that live, and on an id. When all have made their parts, or failed to, they agree
// on that. A death between the two makes them begin again, so that no rank has the new communicator alone.
Result<std::unique_ptr<Communicator>> Survivors::shrink(const ShrinkWish& wish, const MakeGroup& make_group) {
  const Inside inside(&inside_);
  if (!inside.status().is_ok()) return inside.status();
  const std::int64_t timeout_ms =
      wish.settings != nullptr ? wish.settings->init_timeout_ms : epoch_.settings().init_timeout_ms;
  const std::string call =
      wish.left_out.empty() ? "tuttiCommShrink" : "tuttiCommShrink without " + list_ranks(wish.left_out);
  std::vector<int> left_out = wish.left_out;
  for (;;) {
    auto living = agree_inside({call, left_out, ~std::uint64_t{0}, epoch_.draw_id()}, Deadline::after_ms(timeout_ms));
    if (!living.is_ok()) return living.status();
    left_out = joined(left_out, living->failed);
    GroupWish group{living->offer, all_but(epoch_.ranks(), left_out), wish.settings, wish.refused};
    group.ignores_revoke = true;
    auto made = make_group(group);
    const std::uint64_t success = made.is_ok() ? ~std::uint64_t{0} : 0;
    // The two have different texts: a rank in the first one does not contribute to the second.
    auto end = agree_inside({call + " (its second step)", left_out, success, 0}, Deadline::after_ms(timeout_ms));
    if (!end.is_ok()) return end.status();
    if (!end->failed.empty()) {
      left_out = joined(left_out, end->failed);
    } else if (!made.is_ok() || end->flags == success) {
      return made;
    } else {
      return Status::remote("another rank could not make its part of the new communicator");
    }
  }
}

}  // namespace tutti::internal
