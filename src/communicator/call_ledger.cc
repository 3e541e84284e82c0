#include "communicator/call_ledger.h"

#include <algorithm>
#include <string>

namespace tutti {
namespace {

// Stalled ranks stand within a few operations of each other.
constexpr std::size_t kMaxEntries = 128;

}  // namespace

Status CallLedger::add(int rank, const std::vector<CallRecord>& calls, bool* news) {
  *news = false;
  for (const CallRecord& call : calls) {
    const auto known = std::find_if(entries_.begin(), entries_.end(),
                                    [&](const Entry& entry) { return entry.call.sequence == call.sequence; });
    if (known == entries_.end()) {
      *news = true;
      entries_.push_back({call, rank});
      if (entries_.size() > kMaxEntries) entries_.pop_front();
    } else if (known->call.call != call.call) {
      return Status::mismatch("ranks called different operations: rank " + std::to_string(known->rank) + " runs " +
                              known->call.text + ", rank " + std::to_string(rank) + " runs " + call.text);
    }
  }
  return {};
}

}  // namespace tutti
