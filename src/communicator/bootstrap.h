// How the ranks of a job find each other, and the control tree that stays afterwards.
//
// A unique id holds the addresses of a root service and a secret. Every rank connects to the root
// once and is told its parent in a k-ary tree; it connects there and to nobody else. While the tree is
// being connected the root sees who dies, and tells. Over the tree
// each rank's PeerInfo is gathered and handed to all. Every connection begins with a mutual proof of
// knowledge of the secret (net/auth.h): a stranger gets nothing and stops nothing.
//
// The tree's connections stay open for the life of the communicator, watched by one sleeping thread
// (ControlTree). They carry failure notices and goodbyes, and their breaking is how a death is seen:
// each part into which a dead rank splits the tree has a neighbour of it, which tells the others.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/config.h"
#include "base/descriptors.h"
#include "base/failure.h"
#include "base/status.h"

namespace tutti {

inline constexpr std::size_t kUniqueIdBytes = 128;
using UniqueIdBytes = std::array<std::uint8_t, kUniqueIdBytes>;
using Secret = std::array<std::uint8_t, 32>;

// What every rank knows of every other. The control tree carries it as bytes and reads none of it.
struct PeerInfo {
  std::int32_t rank = 0;
  std::int32_t pid = 0;
  std::array<std::uint8_t, 16> boot{};     // kernel's boot id: the machine, whatever its hostname says
  std::array<std::uint8_t, 16> process{};  // random per process: the same value means one address space
  std::uint64_t network_namespace = 0;     // inode of /proc/self/ns/net
  std::string hostname;                    // for messages only
  std::int32_t cores = 1;                  // that this rank may run on (sched_getaffinity)
  std::string unix_address;                // abstract Unix socket name of the Connector, empty if none
  std::string unix_path;                   // the same by path, reachable from other network namespaces; or empty
  std::vector<std::string> tcp_addresses;  // "host:port", "[v6]:port" of the Connector, best first
  std::string settings;                    // what must agree among ranks, in text; rank 0's holds
  // This process: everything but the Connector's addresses and the settings.
  static Result<PeerInfo> local(int rank);
  // By boot id. A machine whose kernel tells none equals no other.
  [[nodiscard]] bool same_machine(const PeerInfo& other) const;
  [[nodiscard]] std::string serialize() const;
  static Result<PeerInfo> parse(const std::string& bytes);
};

// Drawn once per process, anew in a forked child: the same value means one address space.
Result<std::array<std::uint8_t, 16>> process_token();

// What is wrong with a rank alone (a system call, its memory) is a remote error to the others.
Status as_told_to_peers(const Status& status);

// Starts the root service of a new job in this process: a thread that ends when the control tree of all ranks
// stands or the init timeout has passed.
Result<UniqueIdBytes> create_unique_id(const Settings& settings);
// The same at a known address, for jobs that agree on it beforehand. `job` is what the secret is derived from (with
// TUTTI_SECRET if set): it must tell apart jobs whose roots share candidate ports, and not hold the address, which
// ranks may spell in several ways. `ports`: candidates; the service takes the first free one,
// and ranks try all of them in turn until one proves that it knows the secret.
struct KnownRoot {
  std::string host;
  std::vector<std::uint16_t> ports;
  std::string job;
};

// Numbers of operations are modulo 2^32, which some programs reach within minutes. The two are less than half of that
// apart: ranks are within a few operations of each other, and a rank that is not ends the job's waits by its absence.
constexpr bool is_before(std::uint32_t a, std::uint32_t b) {
  return static_cast<std::int32_t>(a - b) < 0;
}

// One operation that a rank has called. Records of two ranks with the same number differ in `call`
// exactly if the ranks have called different things.
struct CallRecord {
  std::uint32_t sequence = 0;
  std::array<std::uint64_t, 2> call{};
  std::uint64_t before = 0;  // a hash of all operations before this one
  std::string text;
  std::string plan;  // how the rank runs it; empty where it has not decided yet
};

// All that a rank has called.
struct CallSummary {
  std::uint32_t operations = 0;   // modulo 2^32
  std::uint64_t hash = 0;         // of all of them
  std::vector<CallRecord> calls;  // the last, the oldest first
};

// What a rank is at: the number of the last operation that it has begun, and whether it is still inside.
struct Whereabouts {
  std::uint32_t sequence = 0;
  bool inside = false;
};

// Asked by a rank in whose operation nothing moves: who has not arrived?
struct Question {
  std::uint32_t sequence = 0;    // of its operation
  std::int64_t patience_ms = 0;  // a process that does not answer for so long is silent
  std::int64_t waited_ms = 0;    // how long it has waited, if a person is to be told; else 0
  std::string what;              // the operation in words, likewise
};

// A rank that the others wait for.
struct Absence {
  int rank = -1;
  bool silent = false;         // its process does not answer. Else it does, and
  std::uint32_t sequence = 0;  // the rank has not begun an operation after this one,
  bool inside = false;         // in which it still is: then it may wait itself for a rank that is further behind
  bool operator==(const Absence&) const = default;
};

// How long the answer takes: the patience, and then time for reports to reach rank 0. Both depend on how loaded the
// machines are.
constexpr std::int64_t inquiry_ms(std::int64_t patience_ms) {
  return patience_ms + (patience_ms < 400 ? 100 : patience_ms / 4);
}

struct Answer {
  Question question;
  std::vector<Absence> absent;  // by rank; empty: nobody is known to be missing
};

// How the control tree sees its rank. All are called by any thread, from watch() until leave() has returned or the
// tree is destroyed, and must not wait.
struct Witness {
  std::function<Whereabouts()> where;
  std::function<void(const Answer&)> answered;  // to a question of any rank
  std::function<CallSummary()> calls{};         // what the rank has called
};

class ControlTree {
 public:
  virtual ~ControlTree() = default;
  // Collective, during initialisation only: every rank's bytes, by rank.
  virtual Result<std::vector<std::string>> all_gather(const std::string& mine, Deadline deadline) = 0;
  // Starts the watching thread. Before: initialisation; after: only the calls below.
  virtual Status watch(std::shared_ptr<FailureState> failure, Witness witness) = 0;
  // Tells all ranks that this one has failed with `status` (they fail with the same code and a text
  // that names this rank). Any thread; returns without waiting for the peers.
  virtual void announce_failure(const Status& status) = 0;
  // Tells what this rank has called lately, because nothing moves. If another rank has reported a
  // different call under the same number, all ranks fail with kMismatch and a text that names both.
  // After watch(); any thread; returns without waiting for the peers.
  virtual void report_calls(std::vector<CallRecord> calls) = 0;
  // Finds out who has not arrived, and gives the answer to the witnesses of all ranks that can be reached, this one
  // among them: inquiry_ms(patience_ms) later, or never. Questions of several ranks at a time are one.
  // After watch(); any thread; returns without waiting for the peers.
  virtual void ask(Question question) = 0;
  // Asks all ranks what they have called lately, because this one knows that they differ: all ranks fail as after
  // report_calls(). After watch(); any thread; returns without waiting for the peers.
  virtual void compare_calls() = 0;
  // Tells all ranks that this one calls nothing more, and what it has called; waits until all others have said so
  // too, but not for longer than `wait_ms`, nor once the communicator has failed. Of two ranks that have called
  // different things, or one more than the other, whoever hears of the other fails all with kMismatch and a text
  // that names both. After watch(), before leave(). Returns whether all have said so.
  virtual bool finish(std::int64_t wait_ms) = 0;
  // Tells all ranks that this one leaves for good, and stops the watching thread. Bounded: < 1 s.
  virtual void leave() = 0;
};

// What one rank may have open at most: its part of the tree and links to all others.
DescriptorReservation reserve_descriptors(int ranks, const Settings& settings);

struct Job {
  int rank = 0;
  int ranks = 1;
  Secret secret{};
  std::unique_ptr<ControlTree> tree;  // null only for ranks == 1
  DescriptorReservation descriptors;  // empty for ranks that are threads of one process
};

Result<Job> join(const UniqueIdBytes& id, int rank, int ranks, const Settings& settings, Deadline deadline);
// With one port in `root`, rank 0 must get that one; a taken port is an error.
Result<Job> join(const KnownRoot& root, int rank, int ranks, const Settings& settings, Deadline deadline);

// The ranks of one process that are threads of it, without any socket: one Job per rank.
Result<std::vector<Job>> make_in_process_jobs(int ranks);

}  // namespace tutti
