#include <fmt/core.h>

#include "base/rank_list.h"
#include "monitor/diagnosis.h"

namespace tutti::internal::monitor {

using observe::SeenCall;
using observe::SeenProcess;
using observe::SeenRank;

std::string describe(const SeenRank::Transfer& transfer) {
  return fmt::format("{} of {} bytes {} rank {}", transfer.sends ? "send" : "receive", transfer.bytes,
                     transfer.sends ? "to" : "from", transfer.peer);
}

std::string describe_awaited(const SeenRank::Wait& wait) {
  if (wait.ranks.empty()) return "other ranks";
  return list_ranks(wait.ranks) + (wait.others ? " and others" : "");
}

std::string describe_state(const SeenProcess& process, const SeenRank& rank) {
  if (rank.failure) return "failed";
  if (process.stopped()) return "stopped";
  if (rank.wait) return fmt::format("waits {} for {}", describe_time(rank.wait->ms), describe_awaited(*rank.wait));
  if (rank.agreement) return "in " + rank.agreement->call;
  if (rank.behind_since_ns && !rank.inside) return "waits for its stream";
  return rank.inside ? "inside" : "outside";
}

std::string describe_last(const SeenRank& rank) {
  if (rank.transfer) return describe(*rank.transfer);
  if (const SeenCall* const last = rank.last()) return describe(*last);
  return rank.number == 0 ? "none yet" : fmt::format("operation {}", rank.number);
}

std::string describe_findings(const CommunicatorFindings& findings) {
  std::string text =
      fmt::format("communicator {:016x} of {} rank{}{}\n", findings.id, findings.ranks, findings.ranks == 1 ? "" : "s",
                  findings.failed  ? ": has failed"
                  : findings.stuck ? ": stands still"
                                   : "");
  for (const Finding& finding : findings.findings) {
    text += fmt::format("  {}{}\n", finding.kind == Finding::Kind::kConclusion ? "=> " : "", finding.text);
  }
  return text;
}

std::string describe_time(std::int64_t ms) {
  if (ms < 1000) return fmt::format("{} ms", ms);
  if (ms < 120'000) return fmt::format("{}.{} s", ms / 1000, ms % 1000 / 100);
  if (ms < 7'200'000) return fmt::format("{} min", ms / 60'000);
  return fmt::format("{} h", ms / 3'600'000);
}

}  // namespace tutti::internal::monitor
