// What this rank knows of the job's machine: who runs where, which transports are allowed, and what
// follows from that for selection and waiting. Every rank derives the same from the same address book.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/config.h"
#include "base/status.h"
#include "bootstrap/peer_info.h"
#include "communicator/transports.h"
#include "topology/detect.h"
#include "transport/verbs/options.h"
#include "transport/verbs/ports/devices.h"

namespace tutti::internal {

// This rank's PeerInfo but for its addresses.
Result<PeerInfo> describe_self(int rank, const Settings& settings);

// What one rank has told of its RDMA ports.
struct Rdma {
  std::vector<transport::verbs::Port> ports;  // empty: none
  std::string trouble;                        // then why
};

// What a rank tells the others of its machine and its settings: PeerInfo::settings, packed.
struct RankSettings {
  topology::ProcessorSet cpus;  // that it may use
  // What one of them has of a level-2 cache, if all that share it use it alike; 0: not told.
  std::uint64_t level2_bytes = 0;
  // Of these rank 0's hold.
  std::string transports;
  std::string algorithm;
  bool strict = false;
  int rails = 0;  // see verbs::Options
  int queue_pairs = 1;
  // Empty until it has opened its ports.
  Rdma rdma;

  [[nodiscard]] std::string pack() const;
  static Result<RankSettings> unpack(const std::string& bytes);
};
// Tells `rdma` and, of `options`, what must be the same on all ranks, with the rest of self->settings.
Status add_rdma(Rdma rdma, const transport::verbs::Options& options, PeerInfo* self);

// Of a machine that does not tell.
inline constexpr std::size_t kUsualLevel2Bytes = 2 * 1024 * 1024;

struct Membership {
  int rank = 0;
  std::vector<PeerInfo> peers;          // by rank
  std::vector<std::vector<int>> hosts;  // ranks that can share memory, by host, in rank order
  bool oversubscribed = false;          // more ranks on this machine than processors they may use
  int preferred_processor = -1;         // where oversubscribed, the processor on which this rank takes turns; -1: any
  std::size_t preferred_processor_step_bytes = 0;  // the longest message of operations in which it keeps to that
  double ranks_per_cpu = 1;                      // ranks per processor on the machine with most; the same on every rank
  std::size_t level2_bytes = kUsualLevel2Bytes;  // that a processor has, the least of all; the same on every rank
  bool one_process = false;                      // all ranks are threads of this process
  std::string algorithm;                         // forced, by rank 0's TUTTI_ALGORITHM; empty: none
  bool strict = false;                           // every call is compared on all ranks, by rank 0's TUTTI_CHECK
  Transports transports;                         // rank 0's
  std::vector<Rdma> rdma;                        // by rank; all empty until the ranks have told
  int rails = 0;                                 // of pairs over RDMA, as rank 0 has it: see verbs::Options
  int queue_pairs = 1;                           // per rail, as rank 0 has it
  std::vector<bool> verbs_with;                  // by rank: this rank talks with it by RDMA
  bool all_verbs = false;                        // so do all ranks on different hosts; the same on every rank

  [[nodiscard]] int ranks() const { return static_cast<int>(peers.size()); }
  // Whether a pair of ranks on different hosts may come to use RDMA: then all tell of their ports.
  [[nodiscard]] bool wants_rdma() const { return transports.verbs && hosts.size() > 1; }
  // Where `rank` sits among the ranks of its machine.
  [[nodiscard]] transport::verbs::LocalPosition local_position(int of) const;
  // Why ranks a < b do not talk by RDMA, which TUTTI_TRANSPORTS allows; empty: they do.
  [[nodiscard]] std::string trouble_between(int a, int b) const;
  // Once all have told: fills verbs_with and all_verbs. kSystemError if this rank must use RDMA and cannot.
  Status resolve_rdma();
};

// REQUIRES: peers[i].rank == i.
Result<Membership> make_membership(int rank, std::vector<PeerInfo> peers);

}  // namespace tutti::internal
