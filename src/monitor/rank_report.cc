#include "monitor/rank_report.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "control/control_tree.h"
#include "net/frame.h"
#include "observe/origin.h"
#include "os/kernel.h"

namespace tutti::internal::monitor {
namespace {

using observe::SeenCall;
using observe::SeenProcess;
using observe::SeenRank;

constexpr std::size_t kMostText = 320;
constexpr std::uint32_t kMostRanksAwaited = 8;
constexpr std::int64_t kUnknown = -1;
constexpr std::int64_t kMostNsAgo = std::int64_t{1} << 60;

void put_text(net::Packer* packer, const std::string& text) {
  packer->text(text.substr(0, kMostText));
}

std::string take_text(net::Unpacker* unpacker) {
  return log::printable(unpacker->text().substr(0, kMostText));
}

void put_flag(net::Packer* packer, bool flag) {
  packer->number(static_cast<std::uint8_t>(flag));
}

bool take_flag(net::Unpacker* unpacker) {
  return unpacker->number<std::uint8_t>() != 0;
}

void put_time(net::Packer* packer, const SeenProcess& process, std::optional<std::int64_t> ns) {
  packer->number(ns ? std::max<std::int64_t>(0, process.read_ns - *ns) : kUnknown);
}

// CLOCK_MONOTONIC of this host.
std::optional<std::int64_t> take_time(net::Unpacker* unpacker, std::int64_t now_ns) {
  const auto ago_ns = unpacker->number<std::int64_t>();
  if (ago_ns < 0) return std::nullopt;
  return std::max<std::int64_t>(1, now_ns - std::min(ago_ns, kMostNsAgo));
}

void put_wait(net::Packer* packer, const SeenRank& rank) {
  put_flag(packer, rank.wait.has_value());
  if (!rank.wait) return;
  const auto count = std::min<std::uint32_t>(kMostRanksAwaited, static_cast<std::uint32_t>(rank.wait->ranks.size()));
  packer->number(rank.wait->ms).number(count);
  for (std::uint32_t i = 0; i < count; ++i) packer->number(static_cast<std::int32_t>(rank.wait->ranks[i]));
  put_flag(packer, rank.wait->others);
}

void take_wait(net::Unpacker* unpacker, SeenRank* rank) {
  if (!take_flag(unpacker)) return;
  SeenRank::Wait wait;
  wait.ms = std::max<std::int64_t>(0, unpacker->number<std::int64_t>());
  const std::uint32_t count = std::min(kMostRanksAwaited, unpacker->number<std::uint32_t>());
  for (std::uint32_t i = 0; i < count; ++i) {
    wait.ranks.push_back(std::clamp(unpacker->number<std::int32_t>(), 0, rank->ranks - 1));
  }
  std::sort(wait.ranks.begin(), wait.ranks.end());
  wait.others = take_flag(unpacker);
  rank->wait = std::move(wait);
}

void put_call(net::Packer* packer, const SeenProcess& process, const SeenCall* call) {
  put_flag(packer, call != nullptr);
  if (call == nullptr) return;
  packer->number(call->call).number(call->root).number(call->count);
  put_time(packer, process, call->begun_ns);
  put_time(packer, process, call->ended_ns);
}

void take_call(net::Unpacker* unpacker, std::int64_t now_ns, SeenRank* rank) {
  if (!take_flag(unpacker)) return;
  SeenCall call;
  call.number = rank->number;
  call.call = unpacker->number<std::uint32_t>();
  call.root = unpacker->number<std::uint32_t>();
  call.count = unpacker->number<std::uint64_t>();
  call.begun_ns = take_time(unpacker, now_ns);
  call.ended_ns = take_time(unpacker, now_ns);
  rank->calls.push_back(std::move(call));
}

// Most collectives are never called.
void put_counts(net::Packer* packer, const SeenRank& rank) {
  static_assert(kCollectives <= 32);
  std::uint32_t called = 0;
  for (std::size_t i = 0; i < rank.counts.size(); ++i) called |= rank.counts[i] != 0 ? std::uint32_t{1} << i : 0;
  packer->number(called);
  for (const std::uint64_t count : rank.counts) {
    if (count != 0) packer->number(count);
  }
}

void take_counts(net::Unpacker* unpacker, SeenRank* rank) {
  const auto called = unpacker->number<std::uint32_t>();
  for (std::size_t i = 0; i < rank->counts.size(); ++i) {
    if ((called >> i & 1) != 0) rank->counts[i] = unpacker->number<std::uint64_t>();
  }
}

}  // namespace

std::string report_of_rank(std::uint64_t communicator, int rank) {
  auto report = guarded_result([&]() -> Result<std::string> {
    auto process = observe::read_process(observe::number_in_proc(os::kernel().getpid()));
    if (!process.is_ok()) return process.status();
    for (const SeenRank& seen : process->ranks) {
      if (seen.communicator == communicator && seen.rank == rank) return pack_rank(*process, seen);
    }
    return std::string();
  });
  return report.is_ok() ? *report : std::string();
}

std::string pack_rank(const SeenProcess& process, const SeenRank& rank) {
  net::Packer packer;
  put_text(&packer, process.program);
  packer.number(rank.number);
  put_flag(&packer, rank.inside);
  put_wait(&packer, rank);
  put_flag(&packer, rank.transfer.has_value());
  if (rank.transfer) {
    put_flag(&packer, rank.transfer->sends);
    packer.number(static_cast<std::int32_t>(rank.transfer->peer)).number(rank.transfer->bytes);
  }
  put_flag(&packer, rank.agreement.has_value());
  if (rank.agreement) {
    put_text(&packer, rank.agreement->call);
    put_time(&packer, process, rank.agreement->since_ns);
  }
  put_time(&packer, process, rank.behind_since_ns);
  put_flag(&packer, rank.failure.has_value());
  if (rank.failure) {
    put_text(&packer, rank.failure->error);
    put_time(&packer, process, rank.failure->at_ns);
    put_flag(&packer, rank.failure->inside);
  }
  put_counts(&packer, rank);
  put_call(&packer, process, rank.last());
  return packer.bytes().size() <= kMostReportBytes ? packer.bytes() : std::string();
}

std::optional<SeenProcess> unpack_rank(const std::string& bytes, std::uint64_t communicator, int rank, int ranks,
                                       const PeerPlace& place, std::int64_t now_ns) {
  if (bytes.empty()) return std::nullopt;
  net::Unpacker unpacker(bytes);
  SeenRank seen;
  seen.communicator = communicator;
  seen.rank = rank;
  seen.ranks = ranks;
  SeenProcess process;
  process.pid = place.pid;
  process.host = place.host;
  process.state = 'R';
  process.read_ns = now_ns;
  process.program = take_text(&unpacker);
  seen.number = unpacker.number<std::uint32_t>();
  seen.inside = take_flag(&unpacker);
  take_wait(&unpacker, &seen);
  if (take_flag(&unpacker)) {
    SeenRank::Transfer transfer;
    transfer.sends = take_flag(&unpacker);
    transfer.peer = unpacker.number<std::int32_t>();
    transfer.bytes = unpacker.number<std::uint64_t>();
    seen.transfer = transfer;
  }
  if (take_flag(&unpacker)) {
    const std::string call = take_text(&unpacker);
    seen.agreement = SeenRank::Agreement{call, take_time(&unpacker, now_ns).value_or(now_ns)};
  }
  seen.behind_since_ns = take_time(&unpacker, now_ns);
  if (take_flag(&unpacker)) {
    const std::string error = take_text(&unpacker);
    const std::int64_t at_ns = take_time(&unpacker, now_ns).value_or(now_ns);
    seen.failure = SeenRank::Failure{error, at_ns, take_flag(&unpacker)};
  }
  take_counts(&unpacker, &seen);
  take_call(&unpacker, now_ns, &seen);
  if (!unpacker.complete()) return std::nullopt;
  process.ranks.push_back(std::move(seen));
  return process;
}

}  // namespace tutti::internal::monitor
