// Results of tutti as the exceptions that programs on torch.distributed expect.
#pragma once

#include <tutti/tutti.h>

#include <exception>
#include <string>

namespace tutti_torch {

// The last error of `comm`, or of this thread's calls if there is none: the text with its cause, else the result's
// name.
std::string error_text(tuttiResult_t result, tuttiComm_t comm);
// What all errors of timeouts contain, as gloo's do.
constexpr const char* kTimedOut = "Timed out waiting: ";
// What an operation of `comm` has failed with: error_text(), behind the words by which programs know gloo's timeouts
// and lost connections.
std::string failure_text(tuttiResult_t result, tuttiComm_t comm);
// What the ranks of a communicator of two are in the group: 0, which sends, and 1.
struct PairRanks {
  int sender = 0;
  int receiver = 1;
};
// A text of such a communicator, in the group's ranks, without what is of the C interface alone.
std::string told_of_pair(std::string text, PairRanks ranks);
// What an exception says, without torch's backtrace, the name of tutti, and then the operation's, if one is given.
std::string reason_of(const std::exception_ptr& error, const std::string& operation = {});
// torch.distributed.DistBackendError, a RuntimeError: "tutti all_reduce: ...".
std::exception_ptr backend_error(const std::string& operation, const std::string& text);
// Throws backend_error() unless the call has succeeded.
void check(tuttiResult_t result, const std::string& operation, tuttiComm_t comm = nullptr);

}  // namespace tutti_torch
