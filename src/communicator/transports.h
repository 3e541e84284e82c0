// Which transports a job may use: TUTTI_TRANSPORTS, read by the registry.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "transport/transport.h"

namespace tutti::internal {

// What connects ranks that are threads of one process, in place of shared memory.
class ThreadNetwork {
 public:
  ThreadNetwork() = default;
  ThreadNetwork(const ThreadNetwork&) = delete;
  ThreadNetwork& operator=(const ThreadNetwork&) = delete;
  virtual ~ThreadNetwork() = default;
  // from's end of a link to `to`; the k-th call for (from, to) meets the k-th for (to, from). Any thread.
  virtual Result<std::unique_ptr<transport::Link>> link(int from, int to) = 0;
};

// TUTTI_TRANSPORTS, read.
struct Transports {
  bool shm = false;
  bool shm_within_namespace_only = false;
  bool verbs = false;
  bool verbs_asked = false;  // named by someone, not merely tried
  bool tcp = false;
  // A transport that connects only threads of one process, and stands alone: its name (empty: none) and its making.
  std::string_view network;
  std::function<Result<std::unique_ptr<ThreadNetwork>>(int ranks)> make_network;
};

// One line of the registry.
struct TransportEntry {
  std::string_view name;       // as TUTTI_TRANSPORTS has it; an option may follow behind a colon
  std::string_view spellings;  // all that may stand there, for messages: "shm, shm:netns"
  // Allows the transport. False: it has no such option.
  bool (*allow)(const std::optional<std::string>& option, Transports* transports);
};

// The library's transports.
std::span<const TransportEntry> standard_transports();
// What TUTTI_TRANSPORTS may name: the standard ones (registry.cc). A program that links another definition of this
// function than the library's has others besides, as the tests have (tests/sim/registry.cc).
std::span<const TransportEntry> registered_transports();

// `text`: names from the registry, with commas between. kInvalidUsage quotes it, and says what is wrong.
Result<Transports> parse_transports(const std::string& text);

}  // namespace tutti::internal
