#include "base/status.h"

#include <fmt/core.h>

#include <cerrno>
#include <exception>
#include <new>
#include <system_error>

#include "base/control_group.h"
#include "base/descriptors.h"
#include "base/first_use.h"

namespace tutti::internal {
namespace {

const std::string& empty() {
  static constinit FirstUse<const std::string> made;
  return made.get();
}
// Made while there is memory.
[[maybe_unused]] const std::string& empty_made_at_load = empty();
[[maybe_unused]] const Status out_of_memory_made_at_load = Status::out_of_memory();

// With the limits of addresses, while there is memory for the longer text.
Status out_of_memory_within_limits() noexcept {
  try {
    const std::string limits = limits_of_addresses();
    if (!limits.empty()) return Status::system(fmt::format("out of memory ({})", limits), ENOMEM);
  } catch (const std::bad_alloc&) {
  }
  return Status::out_of_memory();
}

}  // namespace

Code code_of(int number) {
  const auto within = [&](Code low, Code high) {
    return number >= static_cast<int>(low) && number <= static_cast<int>(high);
  };
  const bool known = within(Code::kSuccess, Code::kTimeout) || within(Code::kAborted, Code::kMismatch);
  return known ? static_cast<Code>(number) : Code::kInternalError;
}

const char* code_name(Code code) {
  switch (code) {
    case Code::kSuccess: return "tuttiSuccess";
    case Code::kUnhandledCudaError: return "tuttiUnhandledCudaError";
    case Code::kSystemError: return "tuttiSystemError";
    case Code::kInternalError: return "tuttiInternalError";
    case Code::kInvalidArgument: return "tuttiInvalidArgument";
    case Code::kInvalidUsage: return "tuttiInvalidUsage";
    case Code::kRemoteError: return "tuttiRemoteError";
    case Code::kInProgress: return "tuttiInProgress";
    case Code::kTimeout: return "tuttiTimeout";
    case Code::kAborted: return "tuttiAborted";
    case Code::kMismatch: return "tuttiMismatch";
  }
  return "unknown tutti result";
}

Status Status::system(const std::string& what, int error_number) {
  return {Code::kSystemError,
          what + ": " + std::generic_category().message(error_number) + descriptor_advice(error_number),
          means_exhaustion(error_number)};
}

const std::string& Status::message() const {
  return detail_ ? detail_->message : empty();
}

Status Status::out_of_memory() noexcept {
  // Made when the library is loaded. One reference is never released, so it is never freed.
  static constinit FirstUse<const Detail> made;
  const Detail& detail = made.get([] { return Detail{Code::kSystemError, "out of memory", true}; });
  detail.owners.fetch_add(1, std::memory_order_relaxed);
  Status status;
  status.detail_ = &detail;
  return status;
}

void Status::release() noexcept {
  if (detail_->owners.fetch_sub(1, std::memory_order_acq_rel) == 1) delete detail_;
}

Status Status::of_exception() noexcept {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return out_of_memory_within_limits();
  } catch (const std::system_error& e) {
    // From std::thread, in code that may start one outside src/base/service_thread.h.
    return guarded([&] { return Status(Code::kSystemError, e.what() + thread_advice(e.code().value())); });
  } catch (const std::exception& e) {
    return guarded([&] { return internal(fmt::format("unexpected exception: {}", e.what())); });
  } catch (...) {
    return guarded([] { return internal("unexpected exception of unknown type"); });
  }
}

Status Status::with_context(std::string_view context) const noexcept {
  if (is_ok()) return {};
  try {
    const std::string prefix = fmt::format("{}: ", context);
    return message().starts_with(prefix) ? *this : Status(code(), prefix + message(), is_exhaustion());
  } catch (const std::bad_alloc&) {
    return *this;
  }
}

Status Status::with_code(Code code) const noexcept {
  try {
    return {code, message(), is_exhaustion()};
  } catch (const std::bad_alloc&) {
    return *this;
  }
}

}  // namespace tutti::internal
