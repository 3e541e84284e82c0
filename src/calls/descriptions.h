// How messages describe an operation. The text is short if memory for a longer one is missing.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "calls/batch.h"
#include "calls/call.h"
#include "calls/transfer.h"

namespace tutti::internal {

// `others`: the call is the first of a group that runs together.
std::string describe(const Call& call, const transport::Fingerprint& fingerprint, bool others = false) noexcept;
std::string describe(std::span<const Transfer> transfers) noexcept;
// The first line, and as many of the others as fit into `room` bytes with it and a terminating zero.
std::string lines_within(const std::vector<std::string>& lines, std::size_t room);
// "all_reduce", "recv"; "group" for several calls.
const char* name_of(const Batch& batch);

}  // namespace tutti::internal
