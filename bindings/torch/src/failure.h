// Results of tutti as the exceptions that programs on torch.distributed expect.
#pragma once

#include <tutti/tutti.h>

#include <exception>
#include <string>

namespace tutti_torch {

// The last error of `comm`, or of this thread's calls if there is none: the text with its cause, else the result's
// name.
std::string error_text(tuttiResult_t result, tuttiComm_t comm);
// All errors of timeouts contain this text, as gloo's do.
constexpr const char* kTimedOut = "Timed out waiting: ";
// The text of a failed operation of `comm`: error_text() after the words by which programs recognize gloo's timeouts
// and lost connections.
std::string failure_text(tuttiResult_t result, tuttiComm_t comm);
// For a communicator of two ranks: the group ranks of rank 0, which sends, and of rank 1.
struct PairRanks {
  int sender = 0;
  int receiver = 1;
};
// A text of such a communicator, in the group's ranks, without what is of the C interface alone.
std::string told_of_pair(std::string text, PairRanks ranks);
// The text of an exception, without torch's backtrace, the name of tutti, and the operation's name if it is given.
std::string reason_of(const std::exception_ptr& error, const std::string& operation = {});
// torch.distributed.DistBackendError, a RuntimeError: "tutti all_reduce: ...".
std::exception_ptr backend_error(const std::string& operation, const std::string& text);
// Throws backend_error() unless the call has succeeded.
void check(tuttiResult_t result, const std::string& operation, tuttiComm_t comm = nullptr);

}  // namespace tutti_torch
