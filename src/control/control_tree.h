// The control tree of a communicator: how its ranks communicate from init to finalize, over any connections. Over
// sockets: control_comm.h and socket_tree.h; between threads of one process: in_process.h.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/failure.h"
#include "base/status.h"
#include "control/agreement.h"
#include "control/call_record.h"
#include "control/rank_set.h"
#include "net/socket.h"
#include "os/clock.h"

namespace tutti::internal {

// A rank's position: the number of the last operation that it has begun, and whether it is still inside.
struct Whereabouts {
  std::uint32_t sequence = 0;
  bool inside = false;
};

// Asked by a rank whose operation makes no progress: which ranks are missing? Or, for the status of the job, where are
// all ranks?
struct Question {
  std::uint32_t sequence = 0;    // of its operation
  std::int64_t patience_ms = 0;  // a process that does not answer within this time is silent
  std::int64_t waited_ms = 0;    // how long the rank has waited, if a warning must be logged; else 0
  std::string what;              // the text for the operation, if waited_ms > 0
  std::string hint;              // the likely reason if all ranks have called it, if waited_ms > 0
  // Every rank that answers is in the answer. `sequence` is the number of the communicator's ranks.
  bool all = false;
};

// A rank for which the others wait; of a question for all, any rank.
struct Absence {
  int rank = -1;
  bool silent = false;         // its process does not answer; if it does,
  std::uint32_t sequence = 0;  // the last operation that the rank has begun,
  bool inside = false;         // and still is in: then it may itself wait for a rank that is further behind
  std::string report{};        // what Witness::report() returned; of a question about missing ranks, Witness::reason()
  bool operator==(const Absence&) const = default;
};

inline constexpr std::size_t kMostReportBytes = 1024;

// How long the answer takes: patience_ms, and then time for reports to reach rank 0. Both depend on the load of the
// machines.
constexpr std::int64_t inquiry_ms(std::int64_t patience_ms) {
  return patience_ms + (patience_ms < 400 ? 100 : patience_ms / 4);
}

// A call that a rank has refused because of its arguments, or the news that it calls again: the others may wait for it.
struct Refusal {
  int rank = -1;
  std::uint32_t sequence = 0;  // the number that the operation would have had
  std::uint32_t serial = 0;    // rises with each report of a rank, modulo 2^32
  std::string text;            // the reason, naming the call; empty: the rank has made a call since
};

struct Answer {
  Question question;
  std::vector<Absence> absent;  // by rank; empty: no rank is known to be missing
};

// The control tree's access to its rank. Any thread calls these functions, from watch() until leave() has returned or
// the tree is destroyed; they must not wait.
struct Witness {
  std::function<Whereabouts()> where;
  std::function<void(const Answer&)> answered;        // to a question of any rank
  std::function<CallSummary()> calls{};               // the calls of this rank
  std::function<void(const Refusal&)> refused{};      // by another rank; in the order of that rank's serial numbers
  std::function<void(const std::string&)> decided{};  // the argument of another rank's decision
  // Looks after the other listeners of this rank. True: should be called again soon. Only by a tree over sockets, every
  // few seconds, on one communicator of the family.
  std::function<bool()> attend_listeners{};
  // The connections that this rank makes anew: prepare a wait of the tree's thread, and process its events. The same.
  std::function<void(net::PollSet*)> prepare_reconnects{};
  std::function<void(const net::PollSet&)> process_reconnects{};
  // Connections that break are made anew: a neighbour whose connection has ended may live, so this rank asks it before
  // it counts as dead.
  bool remakes_connections = false;
  // For a question of any rank for all: what this rank tells about itself, at most kMostReportBytes; and the answer.
  std::function<std::string()> report{};
  std::function<void(const Answer&)> surveyed{};
  // For a question about missing ranks, if this one is missing, and in no operation: what it does instead, as far as it
  // is known. The same text as long as it does the same.
  std::function<std::string()> reason{};
};

class ControlTree {
 public:
  using GivesUp = std::function<Status()>;
  virtual ~ControlTree() = default;
  // Collective, only during initialisation: every rank's bytes, by rank.
  virtual Result<std::vector<std::string>> all_gather(const std::string& mine, Deadline deadline) = 0;
  // The end of the initialisation: from now on `failure` gets all events. Afterwards only split() and the calls below
  // are allowed.
  virtual Status watch(std::shared_ptr<FailureState> failure, Witness witness) = 0;
  // Tells all ranks that this one has failed with `status` (they fail with the same code and a text that names this
  // rank). Any thread; does not wait for the peers.
  virtual void announce_failure(const Status& status) = 0;
  // Reports this rank's last calls, because nothing moves. If another rank has reported a different call under the same
  // number, or has left after one, all ranks fail with kMismatch and a text that names both. After watch(); any thread;
  // does not wait for the peers.
  virtual void report_calls(std::vector<CallRecord> calls) = 0;
  // kMismatch, naming both ranks and calls, if a rank that has left has called other operations than this one has by
  // now. A leave notice itself is compared only with what this rank had called when it arrived. After watch(); any
  // thread; does not wait.
  virtual Status compare_with_departed() = 0;
  // Finds out which ranks are missing, and gives the answer to the witnesses of all reachable ranks, including this
  // one: inquiry_ms(patience_ms) later (to a question for all perhaps earlier), or never. Simultaneous questions of
  // several ranks become one; those for all are apart from the others. After watch(); any thread; does not wait for the
  // peers.
  virtual void ask(Question question) = 0;
  // Tells all other ranks what this one has refused, or that it has made a call since. After watch(); any thread.
  // Returns when the neighbours have been told, or after `wait_ms`: then the process may end.
  virtual void report_refusal(const Refusal& refusal, std::int64_t wait_ms) = 0;
  // Tells all other ranks a decision of this one that is valid for all. After watch(); any thread; does not wait for
  // the peers. A decision may be lost, or arrive twice, if a rank dies or leaves meanwhile.
  virtual void tell_decision(const std::string& decision) = 0;
  // The same for a decision that is not lost: it may arrive any number of times, until this rank tells the next one of
  // the same kind.
  virtual void tell_lasting_decision(int kind, const std::string& decision) = 0;
  // Asks all ranks for their last calls, because this one knows that they differ: all ranks fail as after
  // report_calls(). After watch(); any thread; does not wait for the peers.
  virtual void compare_calls() = 0;
  // Collective over the members that `own` does not exclude, which make the same calls of agree() with the same
  // excluded and series in the same order: the same result on all that live, whichever die meanwhile. The result
  // contains the contribution of each member that it does not list as failed, or lists only late members
  // (Proposal::takes_late). Works also after the communicator has failed.
  //   kMismatch: two ranks have passed other texts of the call. kRemoteError: a rank has left without calling, or this
  //   one is cut off. kTimeout: a rank has not called by the deadline. With takes_late: this rank has no result in
  //   time, and the others may have one.
  // `gives_up`: called while this rank waits, at least every kFailureCheckMs; if it is not ok, that is the result here.
  // It must not call the tree, nor wait.
  // After watch(); one thread at a time.
  virtual Result<Agreement> agree(const Proposal& own, Deadline deadline, const GivesUp& gives_up) = 0;
  // The members that have died without leaving, as far as this rank knows by now. An error if it is cut off, and hears
  // nothing more. Any thread.
  [[nodiscard]] virtual Result<RankSet> dead() const = 0;
  // Tells all ranks that this one calls nothing more, and what it has called; waits until all others have done the
  // same, but not longer than `wait_ms`, and not after the communicator has failed. If two ranks have called different
  // operations, or one more than the other, the rank that hears of the other fails all with kMismatch and a text that
  // names both. After watch(), before leave(). Returns whether all have done so.
  virtual bool finish(std::int64_t wait_ms) = 0;
  // The control tree of another communicator of some of these ranks, over the same connections and with the same
  // thread, which live as long as any of the two. members[i] is the rank in this tree's numbering that is rank i of the
  // new one; all calls, texts and answers of the new tree use its own numbering. This rank is one of the members. May
  // be null for a single member, as in Job. `id`: the same on all members and used for no other communicator of the
  // job; not 0.
  //
  // Returns at once; members may call it at different times. Before this tree leaves; any thread. A failure of one is
  // not a failure of the other; a rank that dies fails all communicators of which it is a member and that it has not
  // left.
  //
  // `gives_up`: called while the new tree's all_gather() waits, at least every kFailureCheckMs; if it is not ok, that
  // is the error of all_gather(). A new tree with `gives_up` fails also if a member has left this tree without making
  // its part of the new one. Empty: all members are expected.
  virtual Result<std::unique_ptr<ControlTree>> split(std::uint64_t id, std::vector<int> members, GivesUp gives_up) = 0;
  Result<std::unique_ptr<ControlTree>> split(std::uint64_t id, std::vector<int> members) {
    return split(id, std::move(members), {});
  }
  // Tells all ranks that this one leaves for good. The last tree of a job to leave in a process ends the connections
  // and the thread. Bounded: < 1 s.
  virtual void leave() = 0;
};

// An error of one rank (a system call, its memory) is a remote error on the others.
Status as_told_to_peers(const Status& status);

}  // namespace tutti::internal
