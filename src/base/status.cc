#include "base/status.h"

#include <system_error>

namespace tutti {

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
  return {Code::kSystemError, what + ": " + std::generic_category().message(error_number)};
}

const std::string& Status::message() const {
  static const std::string empty;
  return detail_ ? detail_->message : empty;
}

Status Status::with_context(const std::string& context) const {
  if (is_ok()) return {};
  return {code(), context + ": " + message()};
}

}  // namespace tutti
