#include "failure.h"

#include <c10/util/Exception.h>

namespace tutti_torch {

std::string error_text(tuttiResult_t result, tuttiComm_t comm) {
  const std::string text = tuttiGetLastError(comm);
  return text.empty() ? std::string(tuttiGetErrorString(result)) : text;
}

std::exception_ptr backend_error(const std::string& operation, const std::string& text) {
  try {
    C10_THROW_ERROR(DistBackendError, "tutti " + operation + ": " + text);
  } catch (...) {
    return std::current_exception();
  }
}

void check(tuttiResult_t result, const std::string& operation, tuttiComm_t comm) {
  if (result != tuttiSuccess) std::rethrow_exception(backend_error(operation, error_text(result, comm)));
}

}  // namespace tutti_torch
