// Handles of the C API are numbers with a pointer type: kind, generation and index. No memory can be at such an address
// (the processor refuses it), so a pointer is never taken for a handle. A stale handle is recognised, because no two
// objects of a process ever have the same handle.
#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <string>

#include "base/status.h"

namespace tutti::internal::api {

enum class HandleKind : std::uint64_t { kComm = 0x5c, kStream = 0x5d, kEvent = 0x5e };

inline constexpr unsigned kIndexBits = 24;
inline constexpr unsigned kKindShift = 56;  // in an address, bits 62 to 56 equal bit 63, with any paging
inline constexpr std::uint64_t kMaxHandles = std::uint64_t{1} << kIndexBits;

constexpr std::uint64_t index_of(std::uint64_t handle) {
  return handle & (kMaxHandles - 1);
}
constexpr std::uint64_t make_handle(HandleKind kind, std::uint32_t generation, std::uint64_t index) {
  return static_cast<std::uint64_t>(kind) << kKindShift | std::uint64_t{generation} << kIndexBits | index;
}
inline std::uint64_t number_of(const void* handle) {
  return reinterpret_cast<std::uintptr_t>(handle);
}

// The error for a forked child that uses an object of its parent.
inline Status inherited(const std::string& what, std::int64_t owner) {
  return Status::invalid_usage(fmt::format(
      "{} belongs to process {}, of which this one is a fork: a forked child must make its own", what, owner));
}

}  // namespace tutti::internal::api
