// The table of collectives, the only description of each. A collective works on a vector. The vector is one block, or,
// if the count of a call is that of a block, one block for each rank.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace tutti::internal {

enum class Collective : std::uint8_t {
  kAllReduce = 0,
  kReduceScatter = 1,
  kAllGather = 2,
  kBroadcast = 3,
  kReduce = 4,
  kBarrier = 5,
  kGather = 6,
  kScatter = 7,
  kAllToAll = 8,
  kScan = 9,
  kExscan = 10,
  kAllGatherV = 11,
  kReduceScatterV = 12,
  kAllToAllV = 13,
  kGatherV = 14,
  kScatterV = 15,
};
inline constexpr int kCollectives = 16;
// Collectives with blocks of equal size come first.
inline constexpr int kUniformCollectives = 11;

// The part of the vector in a rank's buffer. With ...AtRoot and ...ButAtFirst, the other ranks have no such buffer.
enum class Holds : std::uint8_t { kVector, kOwnBlock, kVectorAtRoot, kVectorButAtFirst };

// The source of the values of an output.
enum class Origin : std::uint8_t {
  kAllCombined,  // all ranks' inputs, combined
  kRoot,         // the root's input
  kOwner,        // for each block, the input of the rank that owns it
  kPeer,         // for each block, the block for this rank in the input of the rank that owns it
  kPrefix,       // the inputs of the ranks up to this one, combined
  kPrefixBefore  // the inputs of the ranks before this one, combined
};

struct CollectiveInfo {
  Collective collective;
  const char* name;
  Holds input;
  Holds output;
  Origin origin;
  bool has_data;         // false: takes no buffers, datatype or operator; runs on a token
  bool input_is_output;  // in an in-place call chunk c of the input is chunk c of the output
  bool varies;           // blocks have different counts
};

inline constexpr std::array<CollectiveInfo, kCollectives> kCollectiveTable = {{
    {Collective::kAllReduce, "all_reduce", Holds::kVector, Holds::kVector, Origin::kAllCombined, true, true, false},
    {Collective::kReduceScatter, "reduce_scatter", Holds::kVector, Holds::kOwnBlock, Origin::kAllCombined, true, true,
     false},
    {Collective::kAllGather, "all_gather", Holds::kOwnBlock, Holds::kVector, Origin::kOwner, true, true, false},
    {Collective::kBroadcast, "broadcast", Holds::kVectorAtRoot, Holds::kVector, Origin::kRoot, true, true, false},
    {Collective::kReduce, "reduce", Holds::kVector, Holds::kVectorAtRoot, Origin::kAllCombined, true, true, false},
    {Collective::kBarrier, "barrier", Holds::kVector, Holds::kVector, Origin::kAllCombined, false, true, false},
    {Collective::kGather, "gather", Holds::kOwnBlock, Holds::kVectorAtRoot, Origin::kOwner, true, true, false},
    {Collective::kScatter, "scatter", Holds::kVectorAtRoot, Holds::kOwnBlock, Origin::kRoot, true, true, false},
    {Collective::kAllToAll, "alltoall", Holds::kVector, Holds::kVector, Origin::kPeer, true, false, false},
    {Collective::kScan, "scan", Holds::kVector, Holds::kVector, Origin::kPrefix, true, true, false},
    {Collective::kExscan, "exscan", Holds::kVector, Holds::kVectorButAtFirst, Origin::kPrefixBefore, true, true, false},
    {Collective::kAllGatherV, "all_gather_v", Holds::kOwnBlock, Holds::kVector, Origin::kOwner, true, true, true},
    {Collective::kReduceScatterV, "reduce_scatter_v", Holds::kVector, Holds::kOwnBlock, Origin::kAllCombined, true,
     true, true},
    {Collective::kAllToAllV, "alltoall_v", Holds::kVector, Holds::kVector, Origin::kPeer, true, false, true},
    {Collective::kGatherV, "gather_v", Holds::kOwnBlock, Holds::kVectorAtRoot, Origin::kOwner, true, true, true},
    {Collective::kScatterV, "scatter_v", Holds::kVectorAtRoot, Holds::kOwnBlock, Origin::kRoot, true, true, true},
}};

inline constexpr std::span<const CollectiveInfo> kUniformTable =
    std::span<const CollectiveInfo>(kCollectiveTable).first(kUniformCollectives);

// REQUIRES: a value of the enumeration.
constexpr const CollectiveInfo& info_of(Collective c) {
  return kCollectiveTable[static_cast<std::size_t>(c)];
}

// The set of collectives that satisfy a predicate, as bits: a query needs no memory access, and is allowed for any
// value below 32.
template <class Predicate>
constexpr std::uint32_t collectives_that(Predicate predicate) {
  std::uint32_t set = 0;
  for (std::size_t i = 0; i < kCollectiveTable.size(); ++i) {
    if (predicate(kCollectiveTable[i])) set |= std::uint32_t{1} << i;
  }
  return set;
}
constexpr bool is_among(std::uint32_t set, Collective c) {
  return (set >> (static_cast<unsigned>(c) & 31) & 1) != 0;
}
static_assert(collectives_that([](const CollectiveInfo& info) { return &info == &info_of(info.collective); }) ==
              (std::uint32_t{1} << kCollectives) - 1);

inline constexpr std::uint32_t kWithRoot = collectives_that(
    [](const CollectiveInfo& i) { return i.input == Holds::kVectorAtRoot || i.output == Holds::kVectorAtRoot; });
inline constexpr std::uint32_t kPrefixes = collectives_that(
    [](const CollectiveInfo& i) { return i.origin == Origin::kPrefix || i.origin == Origin::kPrefixBefore; });
inline constexpr std::uint32_t kCombining =
    kPrefixes | collectives_that([](const CollectiveInfo& i) { return i.origin == Origin::kAllCombined; });
inline constexpr std::uint32_t kWithData = collectives_that([](const CollectiveInfo& i) { return i.has_data; });
inline constexpr std::uint32_t kGivingOwnBlock =
    collectives_that([](const CollectiveInfo& i) { return i.input == Holds::kOwnBlock; });
inline constexpr std::uint32_t kGettingOwnBlock =
    collectives_that([](const CollectiveInfo& i) { return i.output == Holds::kOwnBlock; });
inline constexpr std::uint32_t kPermuting =
    collectives_that([](const CollectiveInfo& i) { return i.origin == Origin::kPeer; });
inline constexpr std::uint32_t kInputIsOutput =
    collectives_that([](const CollectiveInfo& i) { return i.input_is_output; });
inline constexpr std::uint32_t kVarying = collectives_that([](const CollectiveInfo& i) { return i.varies; });
static_assert(kVarying == (std::uint32_t{1} << kCollectives) - (std::uint32_t{1} << kUniformCollectives));
inline constexpr std::uint32_t kAlikeEverywhere = collectives_that(
    [](const CollectiveInfo& i) { return i.origin == Origin::kAllCombined && i.output == Holds::kVector; });

constexpr bool has_root(Collective c) {
  return is_among(kWithRoot, c);
}
constexpr bool has_data(Collective c) {
  return is_among(kWithData, c);
}
// Whether schedules combine values: with the operator of the call, or, for a barrier, its tokens.
constexpr bool combines(Collective c) {
  return is_among(kCombining, c);
}
// Whether a call names an operator.
constexpr bool reduces(Collective c) {
  return is_among(kCombining & kWithData, c);
}
// Whether every rank gets the combination of all ranks: in the same order, with the same bits.
constexpr bool alike_everywhere(Collective c) {
  return is_among(kAlikeEverywhere, c);
}
// Whether each rank gets a different combination: of the ranks up to it, or before it. There is no average for these.
constexpr bool combines_prefixes(Collective c) {
  return is_among(kPrefixes, c);
}
constexpr bool gives_own_block(Collective c) {
  return is_among(kGivingOwnBlock, c);
}
constexpr bool gets_own_block(Collective c) {
  return is_among(kGettingOwnBlock, c);
}
// The offset from the input to the output of an in-place call. `block`: bytes.
constexpr std::ptrdiff_t in_place_offset(Collective c, std::size_t block, int rank) {
  const auto own = static_cast<std::ptrdiff_t>(static_cast<std::size_t>(rank) * block);
  return gives_own_block(c) ? -own : gets_own_block(c) ? own : 0;
}
// Whether in an in-place call chunk c of the input is chunk c of the output.
constexpr bool input_is_output(Collective c) {
  return is_among(kInputIsOutput, c);
}
// Whether the blocks of the vector have different counts.
constexpr bool varies(Collective c) {
  return is_among(kVarying, c);
}
// For one that varies: whether all ranks know all counts. Otherwise a rank knows only those of its own buffers.
constexpr bool counts_are_common(Collective c) {
  return !is_among(kWithRoot | kPermuting, c);
}
// Whether the vector has a block for each rank.
constexpr bool has_blocks(Collective c) {
  return is_among(kGivingOwnBlock | kGettingOwnBlock | kPermuting, c);
}
constexpr std::size_t blocks_of(Collective c, int ranks) {
  return has_blocks(c) ? static_cast<std::size_t>(ranks) : 1;
}

// Whether `rank` has such a buffer at all.
constexpr bool has_any(Holds holds, int rank, int root) {
  if (holds == Holds::kVectorButAtFirst) return rank != 0;
  return holds != Holds::kVectorAtRoot || rank == root;
}
// The number of blocks in such a buffer, if the rank has one.
constexpr std::size_t blocks_in(Holds holds, Collective c, int ranks) {
  return holds == Holds::kOwnBlock ? 1 : blocks_of(c, ranks);
}

// Whether `text` is that name, apart from case, "_" and "-": "AllReduce" and "all-reduce" are all_reduce.
constexpr bool is_name(std::string_view text, std::string_view name) {
  const auto skip = [](std::string_view& rest) {
    while (!rest.empty() && (rest.front() == '_' || rest.front() == '-')) rest.remove_prefix(1);
    return !rest.empty();
  };
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; };
  for (bool left = true; left;) {
    left = skip(text);
    if (skip(name) != left || (left && lower(text.front()) != lower(name.front()))) return false;
    if (left) text.remove_prefix(1), name.remove_prefix(1);
  }
  return true;
}

// The collective with the name `text`. Commands, settings and files use this function to read names.
constexpr std::optional<Collective> collective_named(std::string_view text) {
  for (const CollectiveInfo& info : kCollectiveTable) {
    if (is_name(text, info.name)) return info.collective;
  }
  if (is_name(text, "bcast")) return Collective::kBroadcast;
  if (is_name(text, "inclusive_scan")) return Collective::kScan;
  if (is_name(text, "exclusive_scan")) return Collective::kExscan;
  // MPI's, of equal parts.
  if (is_name(text, "reduce_scatter_block")) return Collective::kReduceScatter;
  return std::nullopt;
}

// Lower-case, as the API has them; "unknown" for a value outside the enumeration.
constexpr const char* name_of(Collective c) {
  return static_cast<int>(c) < kCollectives ? info_of(c).name : "unknown";
}

}  // namespace tutti::internal
