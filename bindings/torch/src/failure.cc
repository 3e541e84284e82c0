#include "failure.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <string_view>

namespace tutti_torch {

std::string error_text(tuttiResult_t result, tuttiComm_t comm) {
  const std::string text = tuttiGetLastError(comm);
  return text.empty() ? std::string(tuttiGetErrorString(result)) : text;
}

std::string failure_text(tuttiResult_t result, tuttiComm_t comm) {
  const std::string text = error_text(result, comm);
  if (result == tuttiTimeout) return kTimedOut + text;
  // A rank that has left counts as one that calls less than the others: a mismatch.
  const bool has_left = result == tuttiMismatch && text.find(" has left after ") != std::string::npos;
  if (has_left || result == tuttiRemoteError) return "Connection closed by peer: " + text;
  return text;
}

std::string told_of_pair(std::string text, PairRanks ranks) {
  // In a communicator of one direction no sends wait for each other.
  constexpr std::string_view kOfGroups =
      ", cannot be reached, or sends itself (sends that wait for each other go between tuttiGroupStart and "
      "tuttiGroupEnd)";
  if (const auto at = text.find(kOfGroups); at != std::string::npos)
    text.replace(at, kOfGroups.size(), ", or cannot be reached");
  constexpr std::string_view kRank = "rank ";
  for (auto at = text.find(kRank); at != std::string::npos; at = text.find(kRank, at)) {
    at += kRank.size();
    const auto end = std::min(text.find_first_not_of("0123456789", at), text.size());
    if (end - at != 1 || (text[at] != '0' && text[at] != '1')) continue;
    text.replace(at, 1, std::to_string(text[at] == '0' ? ranks.sender : ranks.receiver));
  }
  return text;
}

std::string reason_of(const std::exception_ptr& error, const std::string& operation) {
  std::string why;
  try {
    std::rethrow_exception(error);
  } catch (const c10::Error& e) {
    why = e.what_without_backtrace();
  } catch (const std::exception& e) {
    why = e.what();
  }
  const std::string name = operation.empty() ? "tutti " : "tutti " + operation + ": ";
  if (why.starts_with(name)) why.erase(0, name.size());
  return why;
}

std::exception_ptr backend_error(const std::string& operation, const std::string& text) {
  try {
    C10_THROW_ERROR(DistBackendError, "tutti " + operation + ": " + text);
  } catch (...) {
    return std::current_exception();
  }
}

void check(tuttiResult_t result, const std::string& operation, tuttiComm_t comm) {
  if (result != tuttiSuccess) std::rethrow_exception(backend_error(operation, failure_text(result, comm)));
}

}  // namespace tutti_torch
