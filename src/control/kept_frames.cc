#include "control/kept_frames.h"

#include <fmt/core.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "os/clock.h"

namespace tutti::internal::control {
namespace {

// Before all ranks have joined, a rank can contribute to the first all-gather, fail, and leave, and resend all that.
constexpr std::size_t kEarlyFramesEach = 16;
constexpr std::size_t kMaxEarly = 1024;      // communicators with kept frames
constexpr std::size_t kMaxForgotten = 1024;  // of the communicators beyond that
// Of forwarded notices.
constexpr std::size_t kMaxPassed = 1024;
constexpr std::size_t kMaxPassedBytes = std::size_t{1} << 20;
constexpr std::size_t kMaxFarewells = 64;
// A rank that forwards nothing is stopped or dead. The frames of one that is stopped for longer than this are lost if
// it dies after that, unless a new neighbour knows them.
constexpr std::int64_t kRecentMs = 60'000;
constexpr std::size_t kMostRecent = 64;
constexpr std::size_t kMaxClaims = 1024;

}  // namespace

bool EarlyFrames::is_forgotten(CommId comm) const {
  return std::find(forgotten_.begin(), forgotten_.end(), comm) != forgotten_.end();
}

void EarlyFrames::keep(const Header& header, const std::string& frame, int ranks) {
  if (is_forgotten(header.comm)) return;
  if (!early_.contains(header.comm)) make_room();
  const auto [kept, is_new] = early_.try_emplace(header.comm);
  Early& early = kept->second;
  if (is_new) early.number = ++count_;
  early.members = std::max(early.members, count_members(header.members, ranks));
  if (early.known.contains(frame)) return;
  // A rank can refuse any number of calls: refusals must not displace frames that the communicator needs.
  if (header.kind == FrameKind::kRefusal && early.frames.size() >= early.members * kEarlyFramesEach / 2) return;
  early.lost = early.lost || early.frames.size() >= early.members * kEarlyFramesEach;
  if (!early.lost) early.known.insert(early.frames.emplace_back(frame));
}

// The oldest is dropped: most likely this rank has failed to make its part.
void EarlyFrames::make_room() {
  if (early_.size() < kMaxEarly) return;
  const auto oldest = std::min_element(early_.begin(), early_.end(),
                                       [](const auto& a, const auto& b) { return a.second.number < b.second.number; });
  forgotten_.push_back(oldest->first);
  if (forgotten_.size() > kMaxForgotten) forgotten_.pop_front();
  early_.erase(oldest);
}

EarlyFrames::Kept EarlyFrames::take(CommId comm) {
  Kept result;
  if (is_forgotten(comm)) result.lost = fmt::format("{} communicators", kMaxEarly);
  const auto kept = early_.find(comm);
  if (kept == early_.end()) return result;
  if (kept->second.lost && result.lost.empty()) result.lost = "it keeps";
  result.frames = std::move(kept->second.frames);
  early_.erase(kept);
  return result;
}

bool Claims::add(CommId comm, const std::string& members) {
  const std::size_t hash = std::hash<std::string>()(members);
  const auto [known, is_new] = members_.try_emplace(comm, hash);
  if (!is_new) return known->second == hash;
  order_.push_back(comm);
  if (order_.size() > kMaxClaims) {
    members_.erase(order_.front());
    order_.pop_front();
  }
  return true;
}

KeptNotices::Passed& KeptNotices::kept_of(FrameKind kind) {
  if (kind == FrameKind::kParts) return parts_;
  return kind == FrameKind::kRefusal ? refusals_ : passed_;
}

std::size_t KeptNotices::first_recent(const Passed& passed) {
  const std::int64_t since_ns = now_ns() - kRecentMs * kNsPerMs;
  const std::size_t most = std::min(passed.frames.size(), kMostRecent);
  const auto first =
      std::lower_bound(passed.at_ns.end() - static_cast<std::ptrdiff_t>(most), passed.at_ns.end(), since_ns);
  return static_cast<std::size_t>(first - passed.at_ns.begin());
}

bool KeptNotices::keep_passed(FrameKind kind, const std::string& frame) {
  Passed& kept = kept_of(kind);
  auto& [frames, at_ns, bytes] = kept;
  if (const auto known = std::find(frames.begin(), frames.end(), frame); known != frames.end()) {
    const std::ptrdiff_t at = known - frames.begin();
    if (static_cast<std::size_t>(at) >= first_recent(kept)) return false;
    frames.erase(known);
    at_ns.erase(at_ns.begin() + at);
    bytes -= frame.size();
  }
  frames.push_back(frame);
  at_ns.push_back(now_ns());
  bytes += frame.size();
  while (frames.size() > kMaxPassed || bytes > kMaxPassedBytes) {
    bytes -= frames.front().size();
    frames.pop_front();
    at_ns.pop_front();
  }
  return true;
}

std::vector<std::string> KeptNotices::recent() const {
  std::vector<std::string> result;
  for (const Passed* const passed : {&parts_, &passed_, &refusals_}) {
    const auto first = static_cast<std::ptrdiff_t>(first_recent(*passed));
    result.insert(result.end(), passed->frames.begin() + first, passed->frames.end());
  }
  result.insert(result.end(), farewells_.begin(), farewells_.end());
  return result;
}

void KeptNotices::keep_farewell(std::string frame) {
  farewells_.push_back(std::move(frame));
  if (farewells_.size() > kMaxFarewells) farewells_.pop_front();
}

}  // namespace tutti::internal::control
