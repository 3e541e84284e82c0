// How ranks split a communicator: what each of them asks for, and which groups come of that.
//
// Values and pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "base/config.h"
#include "base/status.h"
#include "transport/connections/listeners.h"

namespace tutti::internal {

// The color of a rank that takes part and belongs to no group.
inline constexpr std::int32_t kNoColor = -1;

// What one rank asks for.
struct SplitWish {
  std::int32_t color = kNoColor;
  std::int32_t key = 0;
  const Settings* settings = nullptr;  // null: those of the communicator that is split
  Status refused;                      // not ok: this rank takes part only to tell all that it does not go on
};

// What one member of a group asks for, of which no other rank takes part.
struct GroupWish {
  std::uint64_t id = 0;                // drawn by one of them
  std::vector<int> members;            // ranks of the communicator that it is made of, by rank of the new one
  const Settings* settings = nullptr;  // null: those of that communicator
  Status refused;                      // not ok: this rank takes part only to tell the members that it does not go on
};

// What a rank of a split tells all others.
struct SplitRequest {
  std::int32_t color = kNoColor;
  std::int32_t key = 0;
  std::uint64_t id = 0;          // of the new communicator, if this rank is its rank 0
  std::int32_t refused = 0;      // a Code
  std::uint32_t text_bytes = 0;  // of what it says besides: its settings, or why it refuses
};
static_assert(sizeof(SplitRequest) == 24 && std::is_trivially_copyable_v<SplitRequest>);

// The longest texts that a rank may tell: why it refuses or fails, and its settings.
inline constexpr std::size_t kMostReasonBytes = 1024;
inline constexpr std::size_t kMostSettingsBytes = 16 * 1024;

// Whether a rank can have asked for that. `job_rank`: its rank in the first communicator of the job. What a peer tells
// is checked before anything is made of it: a damaged or hostile peer must not take this rank along.
[[nodiscard]] bool is_possible(const SplitRequest& request, std::size_t job_rank);

// What a rank tells at the end of a split: 0 if its part stands, else the length of its reason, and whether the reason
// is another rank's.
struct SplitOutcome {
  static constexpr std::uint32_t kOfAnother = 1U << 31;
  std::uint32_t word = 0;
  [[nodiscard]] bool of_another() const { return (word & kOfAnother) != 0; }
  [[nodiscard]] std::uint32_t text_bytes() const { return word & ~kOfAnother; }
};
[[nodiscard]] bool is_possible(const SplitOutcome& outcome);

// The ranks that name `color`, by their keys, and of equal keys by rank.
std::vector<int> members_of(std::span<const SplitRequest> requests, std::int32_t color);

}  // namespace tutti::internal
