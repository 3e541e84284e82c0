// Registration of memory ranges.
#include "calls/registered_range.h"

#include <fmt/core.h>

#include <cstdint>
#include <limits>
#include <memory>

#include "api/handles.h"

namespace tutti::internal::api {
namespace {

Status check_range(const void* buff, std::size_t size, bool has_result, int flags) {
  if (buff == nullptr) return Status::invalid_argument("buff is NULL");
  if (!has_result) return Status::invalid_argument("the pointer to the result is NULL");
  if (size == 0) return Status::invalid_argument("size is 0");
  const auto begin = reinterpret_cast<std::uintptr_t>(buff);
  if (size - 1 > std::numeric_limits<std::uintptr_t>::max() - begin) {
    return Status::invalid_argument(fmt::format("{} bytes at {} exceed the address space", size, buff));
  }
  if (flags == TUTTI_WIN_DEFAULT || flags == TUTTI_WIN_COLL_SYMMETRIC) return {};
  return Status::invalid_argument(
      fmt::format("winFlags is {:#x}. Pass TUTTI_WIN_DEFAULT or TUTTI_WIN_COLL_SYMMETRIC", flags));
}

// A window is a number with a pointer type, like all handles.
template <class Handle>
tuttiResult_t enter(const char* name, tuttiComm_t comm, void* buff, std::size_t size, int flags, Handle* handle) {
  const auto body = [&](Communicator* c) {
    const auto refused = [&](const Status& status) { return report(status.with_context(name), c); };
    if (Status s = check_range(buff, size, handle != nullptr, flags); !s.is_ok()) return refused(s);
    const Result<int> made =
        c->registered_ranges().add(std::make_shared<const RegisteredRange>(RegisteredRange{buff, size}));
    if (!made.is_ok()) return refused(made.status());
    *handle = reinterpret_cast<Handle>(static_cast<std::uintptr_t>(made.value()));
    return tuttiSuccess;
  };
  return look(comm, body, name);
}

tuttiResult_t remove(const char* name, tuttiComm_t comm, const void* handle) {
  const auto body = [&](Communicator* c) {
    if (handle == nullptr) return tuttiSuccess;
    const std::uint64_t number = number_of(handle);
    const bool possible = number >= kFirstMade && number <= std::numeric_limits<int>::max();
    const Status status = possible
                              ? c->registered_ranges().remove(static_cast<int>(number))
                              : Status::invalid_argument(fmt::format("{} is not a window of this communicator. Pass "
                                                                     "what registration returned",
                                                                     handle));
    return status.is_ok() ? tuttiSuccess : report(status.with_context(name), c);
  };
  return look(comm, body, name);
}

}  // namespace
}  // namespace tutti::internal::api

namespace api = tutti::internal::api;

tuttiResult_t tuttiCommWindowRegister(tuttiComm_t comm, void* buff, size_t size, tuttiWindow_t* win, int winFlags) {
  return api::enter("tuttiCommWindowRegister", comm, buff, size, winFlags, win);
}

tuttiResult_t tuttiCommWindowDeregister(tuttiComm_t comm, tuttiWindow_t win) {
  return api::remove("tuttiCommWindowDeregister", comm, win);
}

tuttiResult_t tuttiCommRegister(const tuttiComm_t comm, void* buff, size_t size, void** handle) {
  return api::enter("tuttiCommRegister", comm, buff, size, TUTTI_WIN_DEFAULT, handle);
}

tuttiResult_t tuttiCommDeregister(const tuttiComm_t comm, void* handle) {
  return api::remove("tuttiCommDeregister", comm, handle);
}
