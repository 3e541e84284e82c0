// Common parts of the entry points of operations.
#pragma once

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "api/groups.h"
#include "api/handles.h"

namespace tutti::internal::api {

// Whether a call was refused, so that nothing has changed.
inline bool is_refusal(const Status& status) {
  return status.code() == Code::kInvalidArgument || status.code() == Code::kInvalidUsage;
}

// The result of a failed operation. An error of the operation itself already names it, and is already the
// communicator's last error.
inline tuttiResult_t report_of(const Status& status, Communicator* comm, const char* name) {
  if (!is_refusal(status)) {
    comm->failures().state().set_told();
    return report(status);
  }
  return report_refusal(status.with_context(name), comm);
}

// Looks up the call's user-defined datatype. `call`: a Call or a Transfer.
template <class AnyCall>
Status name_datatype(AnyCall* call, Communicator& comm, tuttiDataType_t datatype) {
  if (call->type != DataType::kOpaque) [[likely]]
    return {};
  auto found = comm.datatypes().find(static_cast<int>(datatype));
  if (!found.is_ok()) return found.status();
  call->opaque = {static_cast<int>(datatype), **found};
  return {};
}

// The common case of check_elements(): a type that NCCL also has, and a count that cannot overflow, even for all ranks
// together.
inline bool has_plain_elements(DataType type, std::size_t count) {
  constexpr std::size_t kSmallCount = std::size_t{1} << 29;  // of 8 bytes and 2^31 ranks
  return static_cast<unsigned>(type) < kNcclDataTypes && count < kSmallCount;
}

// Checks that the type exists, and that `count` elements of it fit into memory.
inline Status check_elements(DataType type, const Opaque& opaque, std::size_t count) {
  const std::size_t bytes = size_of(type, opaque);
  if (bytes == 0) return Status::invalid_argument("datatype is not a tuttiDataType_t");
  std::size_t all = 0;
  const bool fits = !__builtin_mul_overflow(count, bytes, &all) && all <= SIZE_MAX / 2;
  if (fits && (type != DataType::kOpaque || count <= kMostOpaqueCount)) [[likely]]
    return {};
  return Status::invalid_argument(
      fmt::format("count {} of {} overflows the address space", count, name_of(type, opaque)));
}

// Calls add(communicator, &batch), which checks a call and adds it to the thread's group. If the group has refused a
// call, its calls are not used any more, only its list of communicators.
template <class Add>
tuttiResult_t defer(GroupCalls* group, tuttiComm_t comm, void* stream, const char* name, Add&& add) {
  const Looking looking(number_of(comm));
  Status status = guarded([&] {
    if (!looking.status().is_ok()) return looking.status();
    GroupCalls::CommunicatorCalls& part = group->part_of(number_of(comm));
    if (Status s = add(*looking.get(), part.batch.get()); !s.is_ok()) return s;
    if (looking.get()->device_backend() != nullptr) {
      if (std::find(part.cuda_streams.begin(), part.cuda_streams.end(), stream) == part.cuda_streams.end())
        part.cuda_streams.push_back(stream);
      return Status();
    }
    if (stream == nullptr) {
      part.waits = true;
      return Status();
    }
    auto found = streams().find(number_of(stream));
    if (!found.is_ok()) return found.status();
    if (std::find(part.streams.begin(), part.streams.end(), *found) == part.streams.end())
      part.streams.push_back(std::move(*found));
    return Status();
  });
  if (status.is_ok()) return tuttiSuccess;
  if (!is_refusal(status) && looking.status().is_ok()) status = looking->fail(name, status);
  status = status.with_context(name);
  group->refuse(status);
  if (!looking.status().is_ok()) return report(status);
  return is_refusal(status) ? report_refusal(status, looking.get()) : report(status, looking.get());
}

}  // namespace tutti::internal::api
