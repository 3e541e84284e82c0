// The words of a Fingerprint: which call, run by which plan, after which calls. If the words of two ranks differ, the
// ranks have called or decided differently.
//
// Threads: any; no function here has state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/status.h"
#include "base/types.h"
#include "schedule/schedule.h"
#include "transport/transport.h"

namespace tutti::internal::executor {

// The part of a plan, besides the call, that must be the same on all ranks so that the bytes in their lanes match.
struct PlanIdentity {
  std::uint32_t hash = 0;  // 1 to kPlanMask; 0: no plan
  std::string text;        // "by ring, 8 chunks, in slices of 65536 bytes"
};
inline constexpr unsigned kPlanShift = 17;
inline constexpr std::uint32_t kPlanMask = 0x7fff;

PlanIdentity identify(std::string_view algorithm, const schedule::Schedule& schedule, std::size_t slice_chunk_bytes);

// Fingerprint::call, without a plan. For values outside the enumerations, it differs from that of every valid call.
constexpr std::uint32_t call_word(Collective collective, DataType type, ReduceOp op) {
  return static_cast<std::uint32_t>(collective) | static_cast<std::uint32_t>(type) << 5 |
         static_cast<std::uint32_t>(op) << 12;
}
// Without a plan. word: the value of call_word().
constexpr transport::Fingerprint make_fingerprint(std::uint32_t sequence, std::uint32_t word, std::int32_t root,
                                                  std::size_t count) {
  return {sequence, word, static_cast<std::uint32_t>(root), static_cast<std::uint32_t>(count),
          static_cast<std::uint32_t>(std::uint64_t{count} >> 32)};
}
constexpr transport::Fingerprint make_fingerprint(std::uint32_t sequence, Collective collective, DataType type,
                                                  ReduceOp op, std::int32_t root, std::size_t count) {
  return make_fingerprint(sequence, call_word(collective, type, op), root, count);
}
constexpr transport::Fingerprint with_plan(transport::Fingerprint fingerprint, std::uint32_t hash) {
  fingerprint.call |= hash << kPlanShift;
  return fingerprint;
}
constexpr transport::Fingerprint without_plan(transport::Fingerprint fingerprint) {
  fingerprint.call &= (1u << kPlanShift) - 1;
  return fingerprint;
}
// `hash`: of all calls before this one. The word has room for its highest 12 bits; ranks whose hashes differ detect
// that at the next operation in 4095 of 4096 cases, and otherwise with the same probability at each later one.
inline constexpr unsigned kHistoryShift = 20;
constexpr transport::Fingerprint with_history(transport::Fingerprint fingerprint, std::uint64_t hash) {
  fingerprint.root |= static_cast<std::uint32_t>(hash >> 52) << kHistoryShift;
  return fingerprint;
}
constexpr transport::Fingerprint without_history(transport::Fingerprint fingerprint) {
  fingerprint.root &= (1u << kHistoryShift) - 1;
  return fingerprint;
}
constexpr std::uint64_t count_of(const transport::Fingerprint& fingerprint) {
  return std::uint64_t{fingerprint.count_high} << 32 | fingerprint.count_low;
}

constexpr void set_count(transport::Fingerprint* fingerprint, std::uint64_t count) {
  fingerprint->count_low = static_cast<std::uint32_t>(count);
  fingerprint->count_high = static_cast<std::uint32_t>(count >> 32);
}

// A count of opaque elements also contains their size. REQUIRES: it is at most kMostOpaqueCount, or a hash, of which
// that many bits are kept.
inline constexpr unsigned kOpaqueShift = 48;
static_assert(kMostOpaqueCount >> kOpaqueShift == 0 && kMostElementBytes >> (64 - kOpaqueShift) == 0);
constexpr std::uint64_t count_with_element_bytes(const Opaque& opaque, std::uint64_t count) {
  if (opaque.bytes == 0) [[likely]]
    return count;
  return std::uint64_t{opaque.bytes} << kOpaqueShift | (count & kMostOpaqueCount);
}

// "operation 3, all_reduce(count 4, float, sum)".
std::string describe(const transport::Fingerprint& fingerprint);

// For calls that run together, the first of which has `fingerprint`: a hash of their counts replaces its count.
inline constexpr std::uint32_t kGroup = 1u << 11;  // beside the datatype
static_assert(kDataTypes < 64);
constexpr transport::Fingerprint fingerprint_of_group(transport::Fingerprint fingerprint, std::uint64_t counts) {
  fingerprint.call |= kGroup;
  set_count(&fingerprint, counts);
  return fingerprint;
}
constexpr bool is_group(const transport::Fingerprint& fingerprint) {
  return (fingerprint.call & kGroup) != 0;
}

// For the check before or behind operation `sequence` (TUTTI_CHECK=strict, TUTTI_CHECKSUM): the same on all ranks, for
// every call.
inline constexpr std::uint32_t kCollectiveMask = 31;
constexpr Collective collective_of(std::uint64_t call) {
  return static_cast<Collective>(call & kCollectiveMask);
}
inline constexpr std::uint32_t kCheck = 31;  // in place of a collective
// For a send and its receive: `sequence` is their number among those of the pair in this direction.
inline constexpr std::uint32_t kTransfer = 30;  // in place of a collective
static_assert(kCollectives <= kTransfer);
constexpr transport::Fingerprint fingerprint_of_transfer(std::uint32_t sequence, DataType type, std::uint64_t count) {
  return {sequence, kTransfer | static_cast<std::uint32_t>(type) << 5, 0, static_cast<std::uint32_t>(count),
          static_cast<std::uint32_t>(count >> 32)};
}
constexpr bool is_transfer(const transport::Fingerprint& fingerprint) {
  return (fingerprint.call & kCollectiveMask) == kTransfer;
}
constexpr transport::Fingerprint fingerprint_of_check(std::uint32_t sequence) {
  return {sequence, kCheck, 0, 0, 0};
}
constexpr bool is_check(const transport::Fingerprint& fingerprint) {
  return (fingerprint.call & kCollectiveMask) == kCheck;
}

// Whether the calls are the same, so that only the ranks' own records show the difference.
bool same_call(const transport::Fingerprint& a, const transport::Fingerprint& b);

// The error of two ranks whose fingerprints differ; `peer` sent `theirs`, this rank runs `ours` with `plan`.
Status mismatch(std::int32_t rank, const transport::Fingerprint& ours, const PlanIdentity& plan, std::int32_t peer,
                const transport::Fingerprint& theirs);

}  // namespace tutti::internal::executor
