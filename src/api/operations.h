// What the entry points of operations share.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "api/groups.h"
#include "api/handles.h"

namespace tutti::internal::api {

// The result of an operation that was not a success. What an operation itself fails with names it, and is the
// communicator's last error already.
inline tuttiResult_t report_of(const Status& status, Communicator* comm, const char* name) {
  if (status.code() != Code::kInvalidArgument && status.code() != Code::kInvalidUsage) {
    comm->set_told();
    return report(status);
  }
  return report(status.with_context(name), comm);
}

// Adds to the thread's group what fill(communicator, &member) makes and checks.
template <class Fill>
tuttiResult_t defer(Group* group, tuttiComm_t comm, void* stream, const char* name, Fill&& fill) {
  const Looking looking(number_of(comm));
  Status status = guarded([&] {
    Group::Member member;
    member.comm = number_of(comm);
    Status checked = looking.status().is_ok() ? fill(*looking.get(), &member) : looking.status();
    if (checked.is_ok() && stream != nullptr) {
      auto found = streams().find(number_of(stream));
      if (found.is_ok()) member.stream = *found;
      checked = found.status();
    }
    if (checked.is_ok()) group->add(std::move(member));
    return checked;
  });
  if (status.is_ok()) return tuttiSuccess;
  status = status.with_context(name);
  group->refuse(status);
  return report(status, looking.status().is_ok() ? looking.get() : nullptr);
}

}  // namespace tutti::internal::api
