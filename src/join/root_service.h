// The root service, whose address every rank of a job knows. Ranks register there; when all have, the service sends
// each its parent and children in the tree. A rank keeps the connection until its part of the tree is connected, and
// reports that. Until then a broken connection means a death, and the service notifies all remaining ranks.
//
// Threads: any; the service runs in its own thread.
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

// The maximum of descriptors of a root service until all ranks have joined.
std::size_t descriptors_of_root(int ranks);

// A rank's registration. The first part is the same in all versions of tutti, so that they can report different
// versions. With another protocol, only this part is read.
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
  std::string decided;                     // of rank 0: tell_decided() of its settings
  [[nodiscard]] std::string who() const;   // "rank 3 (host a, pid 77)"
  [[nodiscard]] bool same_version() const;
  [[nodiscard]] std::string library() const;  // "tutti 0.1.0 (protocol 1)"
  [[nodiscard]] std::string serialize() const;
  static Result<Registration> parse(const std::string& bytes);
};

// The host and process of a rank, for messages.
struct RankPlace {
  std::string host;
  std::int32_t pid = 0;
};

// The root's answer. With a failure, only `status` is valid; a failure may also follow a placement.
struct Placement {
  Status status;                       // all versions of tutti use the same format for a failure
  std::string root_who;                // the rank whose process runs the service; empty if it is not a rank's process
  std::string nonce;                   // of this job: see session_secret()
  std::string decided;                 // rank 0's, which apply to all: a rank needs them before it listens
  std::vector<std::string> addresses;  // the rank's own, best first
  std::vector<std::string> parent_addresses;
  RankPlace parent;                 // none for rank 0
  std::vector<RankPlace> children;  // in the order of tree_children()
  [[nodiscard]] std::string serialize() const;
  static Result<Placement> parse(const std::string& bytes);
};

// The last message of a rank, after its placement: ok if its part of the tree is connected, or its error.
struct Report {
  Status status;
  [[nodiscard]] std::string serialize() const;
  static Result<Report> parse(const std::string& bytes);
};

// The secret of the connections between ranks. It differs between jobs whose roots have the same secret, so that a
// remaining rank of one job cannot authenticate to another.
Result<Secret> session_secret(const Secret& root_secret, const std::string& nonce);

// Serves a job on `listener` in its own thread. The thread ends when the parts of all ranks are connected, at the
// deadline, or `after_failure_ms` after a failure of the job, so that late ranks get the error; earlier if all ranks
// have been notified. Logs the missing ranks `notice_ms` after the first rank has arrived, then every minute; 0: never.
Status start_root_service(UniqueFd listener, const Secret& secret, Encryption encryption, Deadline deadline,
                          std::int64_t after_failure_ms, std::int64_t notice_ms);

}  // namespace tutti::internal
