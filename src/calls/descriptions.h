// What messages say of the operation that they are about. Short where there is no memory for more.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "calls/batch.h"
#include "calls/call.h"
#include "calls/transfer.h"

namespace tutti::internal {

// `others`: of a group, of which it is the first.
std::string describe(const Call& call, const transport::Fingerprint& fingerprint, bool others = false) noexcept;
std::string describe(std::span<const Transfer> transfers) noexcept;
// The first line, and of the others as many as fit so many bytes with it and a zero at the end.
std::string lines_within(const std::vector<std::string>& lines, std::size_t room);
// "all_reduce", "recv"; "group" of several.
const char* name_of(const Batch& batch);

}  // namespace tutti::internal
