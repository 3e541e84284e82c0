// Handles of the C API are numbers in the guise of pointers: kind, generation and index. No memory is at such an
// address (the processor refuses it), so that a pointer is never taken for a handle; and a handle of what is gone is
// known as such, since no two things of a process ever have the same one.
#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <string>

#include "base/status.h"

namespace tutti::internal::api {

enum class HandleKind : std::uint64_t { kComm = 0x5c, kStream = 0x5d, kEvent = 0x5e };

inline constexpr unsigned kIndexBits = 24;
inline constexpr unsigned kKindShift = 56;  // addresses have bit 63 and bits 62 to 56 alike, whatever the paging
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

// What a forked child is told of what its parent has made.
inline Status inherited(const std::string& what, std::int64_t owner) {
  return Status::invalid_usage(fmt::format(
      "{} belongs to process {}, of which this one is a fork: a forked child must make its own", what, owner));
}

}  // namespace tutti::internal::api
