// A job of ranks that are threads or processes, through the public C API only.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tutti/tutti.h"

namespace tutti::internal::test {

// The result of one rank: an empty text is success.
struct Outcome {
  std::string wrong;
  std::uint64_t digest = 0;
};

using Body = std::function<Outcome(tuttiComm_t comm, int rank, int ranks)>;

// For all functions: TUTTI_TRANSPORTS is `transports`, and no wait lasts more than a minute unless the environment has
// timeouts. They return one outcome per rank. Processes are forked from a process that has no other thread: REQUIRES
// that this is true.
std::vector<Outcome> run_threads(int ranks, const std::string& transports, const Body& body);
std::vector<Outcome> run_processes(int ranks, const std::string& transports, const Body& body);
// `transports`: by rank.
std::vector<Outcome> run_unlike_processes(const std::vector<std::string>& transports, const Body& body);

// What is wrong, for each rank, because one rank's report may follow from another's error; empty if all succeeded.
std::string wrong_of(const std::vector<Outcome>& outcomes);
bool same_digests(const std::vector<Outcome>& outcomes);

}  // namespace tutti::internal::test
