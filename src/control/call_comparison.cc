#include "control/call_comparison.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <string>

#include "control/call_ledger.h"

namespace tutti::internal {
namespace {

std::string name(int rank) {
  return fmt::format("rank {}", rank);
}

std::string operations(std::uint32_t number) {
  return std::to_string(number) + (number == 1 ? " operation" : " operations");
}

const CallRecord* find(const CallSummary& summary, std::uint32_t sequence) {
  const auto found = std::find_if(summary.calls.begin(), summary.calls.end(),
                                  [&](const CallRecord& call) { return call.sequence == sequence; });
  return found == summary.calls.end() ? nullptr : &*found;
}

// The hash of the first `number` operations, if it is still known.
std::optional<std::uint64_t> hash_after(const CallSummary& summary, std::uint32_t number) {
  if (number == summary.operations) return summary.hash;
  const CallRecord* const next = find(summary, number + 1);
  return next == nullptr ? std::nullopt : std::optional(next->before);
}

bool fewer(const CallSummary& a, const CallSummary& b) {
  return is_before(a.operations, b.operations);
}

}  // namespace

Status contradiction(int rank, const CallSummary& ours, int peer, const CallSummary& theirs) {
  if (ours.operations == theirs.operations && ours.hash == theirs.hash) return {};
  CallLedger ledger;
  bool is_new = false;
  (void)ledger.add(rank, ours.calls, &is_new);
  if (Status s = ledger.add(peer, theirs.calls, &is_new); !s.is_ok()) return s;
  const std::uint32_t both = fewer(ours, theirs) ? ours.operations : theirs.operations;
  const auto own_hash = hash_after(ours, both);
  const auto their_hash = hash_after(theirs, both);
  if (!own_hash || !their_hash || *own_hash == *their_hash) return {};
  return Status::mismatch(fmt::format(
      "ranks called different operations: {} and {} differ among their first {}, longer ago than either remembers",
      name(rank), name(peer), operations(both)));
}

Status difference(int rank, const CallSummary& ours, int peer, const CallSummary& theirs) {
  if (Status s = contradiction(rank, ours, peer, theirs); !s.is_ok()) return s;
  if (ours.operations == theirs.operations) return {};
  if (fewer(ours, theirs)) return difference(peer, theirs, rank, ours);
  const CallRecord* const missed = find(ours, theirs.operations + 1);
  return Status::mismatch(fmt::format("{} leaves after {}, {} runs {}", name(peer), operations(theirs.operations),
                                      name(rank), missed == nullptr ? operations(ours.operations) : missed->text));
}

}  // namespace tutti::internal
