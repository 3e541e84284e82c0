#include "epoch/decisions.h"

#include <algorithm>
#include <cmath>

#include "net/frame.h"

namespace tutti::internal {
namespace {

// The time that a rank waits for rank 0's selection, for each rank that shares its processor: about the time of a
// selection.
constexpr double kPatienceMs = 100;
constexpr int kProofPatience = 5;  // times that for a proof, which takes at most half a second (Plans::prove)

enum class What : std::uint8_t { kSelected = 1, kChecked = 2 };

net::Packer begin(What what, const algorithms::AlgorithmEntry& entry) {
  net::Packer packer;
  packer.number(static_cast<std::uint8_t>(what)).number(static_cast<std::uint8_t>(entry.collective)).text(entry.name);
  return packer;
}

}  // namespace

Decisions::Decisions(ControlTree* tree, const FailureState& failure, int rank, int ranks, double ranks_per_cpu)
    : tree_(ranks > kFewRanks ? tree : nullptr),
      failure_(failure),
      rank_(rank),
      patience_ms_(static_cast<int>(std::lround(kPatienceMs * std::max(1.0, ranks_per_cpu)))) {}

void Decisions::tell_selected(const CallKind& kind, const Entry& entry) {
  if (tree_ == nullptr || rank_ != 0) return;
  {
    const MutexLock lock(mutex_);
    if (!selected_.emplace(kind, &entry).second) return;
  }
  tree_->tell_decision(begin(What::kSelected, entry)
                           .number(static_cast<std::uint8_t>(kind.order))
                           .number(static_cast<std::uint8_t>(kind.size_class))
                           .bytes());
}

void Decisions::tell_checked(const Entry& entry, int root) {
  if (tree_ == nullptr || rank_ != 0) return;
  {
    const MutexLock lock(mutex_);
    if (!checked_.emplace(&entry, root).second) return;
  }
  tree_->tell_decision(begin(What::kChecked, entry).number(root).bytes());
}

template <class Known>
bool Decisions::await(Deadline deadline, int patience_ms, Known known) const {
  if (!are_told()) return false;
  const Deadline patience = Deadline::after_ms(deadline.left_ms(patience_ms));
  const MutexLock lock(mutex_);
  while (!known() && !failure_.failed() && !patience.passed()) {
    changed_.wait_until(mutex_, Deadline::after_ms(patience.left_ms(kFailureCheckMs)));
  }
  return known();
}

const Decisions::Entry* Decisions::await_selected(const CallKind& kind, Deadline deadline) const {
  const Entry* found = nullptr;
  (void)await(deadline, patience_ms_, [&] {
    mutex_.assert_held();
    const auto at = selected_.find(kind);
    if (at != selected_.end()) found = at->second;
    return found != nullptr;
  });
  return found;
}

bool Decisions::await_checked(const Entry& entry, int root, Deadline deadline) const {
  return await(deadline, kProofPatience * patience_ms_, [&] {
    mutex_.assert_held();
    return checked_.contains({&entry, root});
  });
}

const Decisions::Entry* Decisions::selected(const CallKind& kind) const {
  const MutexLock lock(mutex_);
  const auto at = selected_.find(kind);
  return at == selected_.end() ? nullptr : at->second;
}

bool Decisions::checked(const Entry& entry, int root) const {
  const MutexLock lock(mutex_);
  return checked_.contains({&entry, root});
}

void Decisions::hear(const std::string& decision) {
  net::Unpacker unpacker(decision);
  const auto what = static_cast<What>(unpacker.number<std::uint8_t>());
  const auto number = unpacker.number<std::uint8_t>();
  const std::string name = unpacker.text();
  if (!unpacker.ok() || number >= kCollectives) return;
  const Entry* const entry = algorithms::find(static_cast<Collective>(number), name);
  if (entry == nullptr) return;
  const MutexLock lock(mutex_);
  if (what == What::kSelected) {
    const auto order = unpacker.number<std::uint8_t>();
    const auto size_class = unpacker.number<std::uint8_t>();
    if (!unpacker.complete() || order > 1) return;
    selected_.emplace(CallKind{entry->collective, static_cast<schedule::Order>(order), size_class}, entry);
  } else if (what == What::kChecked) {
    const auto root = unpacker.number<std::int32_t>();
    if (!unpacker.complete()) return;
    checked_.emplace(entry, root);
  }
  changed_.notify_all();
}

}  // namespace tutti::internal
