#include "bootstrap/call_ledger.h"

#include <algorithm>
#include <string>

namespace tutti::internal {
namespace {

// Stalled ranks stand within a few operations of each other.
constexpr std::uint32_t kMaxEntries = 128;

}  // namespace

Status CallLedger::add(int rank, const std::vector<CallRecord>& calls, bool* is_new) {
  *is_new = false;
  for (const CallRecord& call : calls) {
    // Numbers come again after 2^32: what is far behind must not be taken for the call that has its number then.
    std::erase_if(entries_, [&](const Entry& e) { return is_before(e.call.sequence + kMaxEntries, call.sequence); });
    const auto known = std::find_if(entries_.begin(), entries_.end(),
                                    [&](const Entry& entry) { return entry.call.sequence == call.sequence; });
    if (known == entries_.end()) {
      *is_new = true;
      entries_.push_back({call, rank});
      if (entries_.size() > kMaxEntries) entries_.pop_front();
      continue;
    }
    const std::string both = "rank " + std::to_string(known->rank) + " runs " + known->call.text;
    const std::string other = "rank " + std::to_string(rank) + " runs ";
    if (known->call.call != call.call) {
      return Status::mismatch("ranks called different operations: " + both + ", " + other + call.text);
    }
    // The calls that differed are too long ago for anybody to remember.
    if (known->call.before != call.before) {
      return Status::mismatch("ranks called different operations before this one: " + both + ", " + other +
                              "the same after other calls");
    }
    if (call.plan.empty() || known->call.plan == call.plan) continue;
    if (!known->call.plan.empty()) {
      return Status::mismatch(
          "ranks run one operation in different ways, as happens if they are of different builds: " + both + " " +
          known->call.plan + ", " + other + "it " + call.plan);
    }
    *is_new = true;
    *known = {call, rank};
  }
  return {};
}

}  // namespace tutti::internal
