#include "communicator/survivors.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <type_traits>
#include <utility>

#include "base/rank_list.h"
#include "communicator/communicator.h"
#include "communicator/join.h"

namespace tutti::internal {
namespace {

std::vector<int> joined(const std::vector<int>& a, const std::vector<int>& b) {
  std::vector<int> both;
  std::set_union(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(both));
  return both;
}

std::vector<int> all_but(int ranks, const std::vector<int>& excluded) {
  std::vector<int> rest;
  for (int rank = 0; rank < ranks; ++rank) {
    if (!std::binary_search(excluded.begin(), excluded.end(), rank)) rest.push_back(rank);
  }
  return rest;
}

// An offer, and what it contains.
template <class T>
std::string bytes_of(const T& value) {
  static_assert(sizeof value <= control::kMaxOfferBytes && std::is_trivially_copyable_v<T>);
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

template <class T>
Result<T> value_of(const std::string& bytes) {
  T value{};
  if (bytes.size() != sizeof value) return Status::remote("protocol error: an offer of the wrong length");
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
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
  auto agreed = epoch_.tree()->agree(own, deadline, [this] { return check_not_aborted(); });
  if (agreed.is_ok()) {
    const MutexLock lock(mutex_);
    failed_ = joined(failed_, agreed->failed);
  }
  return agreed;
}

Status Survivors::check_not_aborted() const {
  return failures_.is_aborted() ? Status::aborted("the communicator has been aborted") : Status();
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
      wish.excluded.empty() ? "tuttiCommShrink" : "tuttiCommShrink without " + list_ranks(wish.excluded);
  std::vector<int> excluded = wish.excluded;
  for (;;) {
    auto living =
        agree_inside({call, excluded, ~std::uint64_t{0}, bytes_of(epoch_.draw_id())}, Deadline::after_ms(timeout_ms));
    if (!living.is_ok()) return living.status();
    auto id = value_of<std::uint64_t>(living->offer);
    if (!id.is_ok()) return id.status();
    excluded = joined(excluded, living->failed);
    GroupWish group{*id, all_but(epoch_.ranks(), excluded), wish.settings, wish.refused};
    group.ignores_revoke = true;
    auto made = make_group(group);
    const std::uint64_t success = made.is_ok() ? ~std::uint64_t{0} : 0;
    // The two have different texts: a rank in the first one does not contribute to the second.
    auto end = agree_inside({call + " (its second step)", excluded, success}, Deadline::after_ms(timeout_ms));
    if (!end.is_ok()) return end.status();
    if (!end->failed.empty()) {
      excluded = joined(excluded, end->failed);
    } else if (!made.is_ok() || end->flags == success) {
      return made;
    } else {
      return Status::remote("another rank could not make its part of the new communicator");
    }
  }
}

Status Survivors::check_alive(const std::vector<int>& dead) const {
  if (epoch_.tree() == nullptr) return {};
  Status status;
  epoch_.tree()->dead().each([&](int rank) {
    if (std::binary_search(dead.begin(), dead.end(), rank)) return;
    status = Status::remote(fmt::format("rank {} died before all ranks had joined", rank));
  });
  return status;
}

// The new ranks know only the id. So the members join a new job with them, in which they are ranks as all others; until
// all have joined, the old control tree tells of members that die.
Result<std::unique_ptr<Communicator>> Survivors::grow(const GrowWish& wish) {
  const Inside inside(&inside_);
  if (!inside.status().is_ok()) return inside.status();
  const Settings settings = wish.settings != nullptr ? *wish.settings : epoch_.settings();
  std::optional<UniqueIdBytes> id = wish.id;
  auto agreed = agree_inside(
      {fmt::format("tuttiCommGrow to {} ranks", wish.ranks), {}, ~std::uint64_t{0}, id ? bytes_of(*id) : std::string()},
      Deadline::after_ms(settings.init_timeout_ms));
  Status refused = agreed.is_ok() ? take_id(wish, *agreed, &id) : agreed.status();
  if (!refused.is_ok()) {
    // The new ranks wait, and perhaps other members.
    if (id) decline_with_id(*id, epoch_.rank(), wish.ranks, refused);
    return refused;
  }
  return join_with_id(*id, epoch_.rank(), wish.ranks, settings, [&]() -> Status {
    const Status aborted = check_not_aborted();
    return aborted.is_ok() ? check_alive(agreed->failed) : aborted;
  });
}

// *id: this rank's own, if it has one; then the one that applies.
Status Survivors::take_id(const GrowWish& wish, const Agreement& agreed, std::optional<UniqueIdBytes>* id) const {
  if (!agreed.offer.empty()) {
    auto common = value_of<UniqueIdBytes>(agreed.offer);
    if (!common.is_ok()) return common.status();
    *id = *common;
  }
  if (!wish.refused.is_ok()) return wish.refused;
  if (const int last = all_but(epoch_.ranks(), agreed.failed).back(); last >= wish.ranks) {
    return Status::invalid_argument(
        fmt::format("nRanks is {}, but rank {} lives and keeps its rank. Pass more, or call tuttiCommShrink first",
                    wish.ranks, last));
  }
  if (!*id) {
    return Status::invalid_usage(
        "no rank has passed a unique id. One rank calls tuttiCommGetUniqueId, and passes its id to tuttiCommGrow");
  }
  if (wish.id && *wish.id != **id) return Status::mismatch("two ranks have passed different unique ids");
  return {};
}

}  // namespace tutti::internal
