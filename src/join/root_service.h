// The root service: the one place that every rank of a job can find. Ranks register; when all have, each is told its
// parent and children in the tree. A rank keeps the connection until its part of the tree stands, and says so: until
// then a connection that breaks is a death, of which the service tells all ranks that are still there.
//
// Threads: any; the service runs in a thread of its own.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/version.h"
#include "control/tree_shape.h"
#include "join/peer_info.h"
#include "join/unique_id.h"
#include "os/clock.h"
#include "os/unique_fd.h"

namespace tutti::internal {

// How many descriptors a root service may need until all ranks have joined.
std::size_t descriptors_of_root(int ranks);

// What a rank tells the root. The first part is the same in all versions of tutti, which so can tell each other that
// they differ; of another protocol there is nothing but that.
struct Registration {
  std::uint32_t protocol = kProtocol;
  std::string version = library_version();
  std::int32_t rank = -1;
  std::int32_t ranks = 0;
  std::int32_t pid = 0;
  std::string host;
  // The rest.
  std::int64_t patience_ms = 0;            // how long the rank will wait for the answer
  std::array<std::uint8_t, 16> process{};  // as in PeerInfo
  std::vector<std::string> addresses;      // of its tree listener, at most net::kMaxAddresses
  std::string trouble;                     // why this rank cannot take part; empty if it can
  std::string transports;                  // its TUTTI_TRANSPORTS
  [[nodiscard]] std::string who() const;   // "rank 3 (host a, pid 77)"
  [[nodiscard]] bool same_version() const;
  [[nodiscard]] std::string library() const;  // "tutti 0.1.0 (protocol 1)"
  [[nodiscard]] std::string serialize() const;
  static Result<Registration> parse(const std::string& bytes);
};

// Where a rank runs, for messages.
struct RankPlace {
  std::string host;
  std::int32_t pid = 0;
};

// What the root answers. With a failure only `status` counts; one may also follow a placement.
struct Placement {
  Status status;           // a failure is written alike by all versions of tutti
  std::string root_who;    // the rank in whose process the service runs; empty if that is no rank's
  std::string nonce;       // of this job: see session_secret()
  std::string transports;  // rank 0's TUTTI_TRANSPORTS, which hold for all: a rank must know them before it listens
  std::vector<std::string> addresses;  // the rank's own, best first
  std::vector<std::string> parent_addresses;
  RankPlace parent;                 // none for rank 0
  std::vector<RankPlace> children;  // in the order of tree_children()
  [[nodiscard]] std::string serialize() const;
  static Result<Placement> parse(const std::string& bytes);
};

// What a rank says last, after its placement: ok, its part of the tree stands; or why it has failed.
struct Report {
  Status status;
  [[nodiscard]] std::string serialize() const;
  static Result<Report> parse(const std::string& bytes);
};

// Under which the ranks of this job meet each other. Jobs that reach their roots by the same secret, one after the
// other or side by side, differ in it: a rank of one that is left over is a stranger to the other.
Result<Secret> session_secret(const Secret& root_secret, const std::string& nonce);

// Serves a job on `listener` from a thread of its own, which ends when the parts of all ranks stand, at
// the deadline, or `after_failure_ms` after the job has failed, so that ranks that come late hear why; earlier if all
// have heard. Logs which ranks are waited for `notice_ms` after the first has come, then every minute; 0: never.
Status start_root_service(UniqueFd listener, const Secret& secret, Deadline deadline, std::int64_t after_failure_ms,
                          std::int64_t notice_ms);

// Whether this process runs the service of that secret.
bool runs_root_service(const Secret& secret);

// If this process runs it, or has: why it serves nobody any more. Ok if it serves, or has done its part.
Status root_service_failure(const Secret& secret);

// If this process runs the service of that secret: waits until it has ended, at most so long. For a rank that cannot
// join: its process may end when it hears why, and others are still to hear that from the service.
void await_root_service(const Secret& secret, std::int64_t longest_ms);

}  // namespace tutti::internal
