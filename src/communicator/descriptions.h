// What messages say of the operation that they are about. Short where there is no memory for more.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "communicator/batch.h"
#include "communicator/call.h"
#include "communicator/coalesced.h"
#include "communicator/transfers.h"

namespace tutti::internal {

std::string describe(const Call& call, const transport::Fingerprint& fingerprint) noexcept;
// `first`: that of the first of its calls.
std::string describe(const Coalesced& coalesced, const transport::Fingerprint& first) noexcept;
std::string describe(std::span<const Transfer> transfers) noexcept;
// The first line, and of the others as many as fit so many bytes with it and a zero at the end.
std::string lines_within(const std::vector<std::string>& lines, std::size_t room);
// "all_reduce", "recv"; "group" of several.
const char* name_of(const Batch& batch);

}  // namespace tutti::internal
