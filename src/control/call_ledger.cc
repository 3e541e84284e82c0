#include "control/call_ledger.h"

#include <fmt/core.h>

#include <algorithm>
#include <string>

namespace tutti::internal {
namespace {

// Stalled ranks are within a few operations of each other.
constexpr std::uint32_t kMaxEntries = 128;

}  // namespace

Status CallLedger::add(int rank, const std::vector<CallRecord>& calls, bool* is_new) {
  *is_new = false;
  for (const CallRecord& call : calls) {
    // Numbers repeat after 2^32: an old record must not be mistaken for the later call with its number.
    std::erase_if(entries_, [&](const Reported& e) { return is_before(e.call.sequence + kMaxEntries, call.sequence); });
    const auto known = std::find_if(entries_.begin(), entries_.end(),
                                    [&](const Reported& entry) { return entry.call.sequence == call.sequence; });
    if (known == entries_.end()) {
      *is_new = true;
      entries_.push_back({call, rank});
      if (entries_.size() > kMaxEntries) entries_.pop_front();
      continue;
    }
    const std::string both = fmt::format("rank {} runs {}", known->rank, known->call.text);
    const std::string other = fmt::format("rank {} runs ", rank);
    if (known->call.call != call.call) {
      return Status::mismatch(fmt::format("ranks called different operations: {}, {}{}", both, other, call.text));
    }
    // The calls that differed are too old to be known on any rank.
    if (known->call.before != call.before) {
      return Status::mismatch(fmt::format(
          "ranks called different operations before this one: {}, {}the same after other calls", both, other));
    }
    if (call.plan.empty() || known->call.plan == call.plan) continue;
    if (!known->call.plan.empty()) {
      return Status::mismatch(fmt::format(
          "ranks run one operation in different ways, as happens if they are of different builds: {} {}, {}it {}", both,
          known->call.plan, other, call.plan));
    }
    *is_new = true;
    *known = {call, rank};
  }
  return {};
}

}  // namespace tutti::internal
