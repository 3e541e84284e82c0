// How ranks split a communicator: the request of each rank, and the resulting groups.
//
// Values and pure functions.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "base/config.h"
#include "base/status.h"
#include "transport/connections/listeners.h"

namespace tutti::internal {

// The color of a rank that takes part without joining a group.
inline constexpr std::int32_t kNoColor = -1;

// The request of one rank.
struct SplitWish {
  std::int32_t color = kNoColor;
  std::int32_t key = 0;
  const Settings* settings = nullptr;  // null: those of the parent communicator
  Status refused;                      // not ok: this rank takes part only to tell the others that it refuses
};

// The request of one member of a group; no other ranks take part.
struct GroupWish {
  std::uint64_t id = 0;                // drawn by one of the members
  std::vector<int> members;            // ranks of the parent communicator, by rank of the new one
  const Settings* settings = nullptr;  // null: those of the parent communicator
  Status refused;                      // not ok: this rank takes part only to tell the members that it refuses
  bool ignores_revoke = false;         // a revoke of the parent communicator does not end the call
  // Called while this rank waits: not ok ends the call with this error. It must not call the control tree, nor wait.
  std::function<Status()> gives_up{};
};

// The message of one rank of a split to all others.
struct SplitRequest {
  std::int32_t color = kNoColor;
  std::int32_t key = 0;
  std::uint64_t id = 0;          // of the new communicator, if this rank is its rank 0
  std::int32_t refused = 0;      // a Code
  std::uint32_t text_bytes = 0;  // length of its text: its settings, or the reason of its refusal
};
static_assert(sizeof(SplitRequest) == 24 && std::is_trivially_copyable_v<SplitRequest>);

// Maximum lengths of a rank's texts: the reason of a refusal or failure, and its settings.
inline constexpr std::size_t kMostReasonBytes = 1024;
inline constexpr std::size_t kMostSettingsBytes = 16 * 1024;

// Whether a rank can have sent this request. `job_rank`: its rank in the first communicator of the job. Messages are
// checked before use: a damaged or hostile peer must not bring this rank down.
[[nodiscard]] bool is_possible(const SplitRequest& request, std::size_t job_rank);

// A rank's message at the end of a split: 0 if its part succeeded, else the length of its reason, and whether the
// reason is another rank's error.
struct SplitOutcome {
  static constexpr std::uint32_t kOfAnother = 1U << 31;
  std::uint32_t word = 0;
  [[nodiscard]] bool of_another() const { return (word & kOfAnother) != 0; }
  [[nodiscard]] std::uint32_t text_bytes() const { return word & ~kOfAnother; }
};
[[nodiscard]] bool is_possible(const SplitOutcome& outcome);

// The ranks with this color, ordered by key, then by rank.
std::vector<int> members_of(std::span<const SplitRequest> requests, std::int32_t color);

}  // namespace tutti::internal
