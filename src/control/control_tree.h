// The control tree of a communicator: how its ranks stay in touch from init to finalize, whatever carries it. Over
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
#include "control/call_record.h"
#include "os/clock.h"

namespace tutti::internal {

// What a rank is at: the number of the last operation that it has begun, and whether it is still inside.
struct Whereabouts {
  std::uint32_t sequence = 0;
  bool inside = false;
};

// Asked by a rank in whose operation nothing moves: which ranks have not arrived?
struct Question {
  std::uint32_t sequence = 0;    // of its operation
  std::int64_t patience_ms = 0;  // a process that does not answer for so long is silent
  std::int64_t waited_ms = 0;    // how long it has waited, if a person is to be told; else 0
  std::string what;              // the operation in words, likewise
  std::string hint;              // what to look at if all ranks have come, likewise
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

// A call that a rank has refused for its arguments, or that it calls again: the others may wait for it.
struct Refusal {
  int rank = -1;
  std::uint32_t sequence = 0;  // the operation that the call would have been
  std::uint32_t serial = 0;    // rises with each one that a rank reports, modulo 2^32
  std::string text;            // why, naming the call; empty: the rank has called something since
};

struct Answer {
  Question question;
  std::vector<Absence> absent;  // by rank; empty: nobody is known to be missing
};

// How the control tree sees its rank. All are called by any thread, from watch() until leave() has returned or the
// tree is destroyed, and must not wait.
struct Witness {
  std::function<Whereabouts()> where;
  std::function<void(const Answer&)> answered;        // to a question of any rank
  std::function<CallSummary()> calls{};               // what the rank has called
  std::function<void(const Refusal&)> refused{};      // by another rank; in the order of each one's serial numbers
  std::function<void(const std::string&)> decided{};  // by another rank: what it has given to tell_decision()
};

class ControlTree {
 public:
  virtual ~ControlTree() = default;
  // Collective, during initialisation only: every rank's bytes, by rank.
  virtual Result<std::vector<std::string>> all_gather(const std::string& mine, Deadline deadline) = 0;
  // The end of the initialisation: from now on `failure` is told what happens. After: only the calls below and split().
  virtual Status watch(std::shared_ptr<FailureState> failure, Witness witness) = 0;
  // Tells all ranks that this one has failed with `status` (they fail with the same code and a text
  // that names this rank). Any thread; returns without waiting for the peers.
  virtual void announce_failure(const Status& status) = 0;
  // Tells what this rank has called lately, because nothing moves. If another rank has reported a
  // different call under the same number, or has left after it, all ranks fail with kMismatch and a text that names
  // both. After watch(); any thread; returns without waiting for the peers.
  virtual void report_calls(std::vector<CallRecord> calls) = 0;
  // kMismatch, naming both ranks and calls, if a rank that has left has called something else than this one has by now.
  // A leave notice itself is judged only by what this rank had called when it came. After watch(); any thread; waits
  // for nobody.
  virtual Status compare_with_departed() = 0;
  // Finds out which ranks have not arrived, and gives the answer to the witnesses of all ranks that can be reached,
  // this one among them: inquiry_ms(patience_ms) later, or never. Questions of several ranks at a time are one. After
  // watch(); any thread; returns without waiting for the peers.
  virtual void ask(Question question) = 0;
  // Tells all other ranks what this one has refused, or that it has called something since. After watch(); any thread.
  // Returns when the neighbours have been told, or after `wait_ms`: then the process may end.
  virtual void report_refusal(const Refusal& refusal, std::int64_t wait_ms) = 0;
  // Tells all other ranks what this one has decided for all. After watch(); any thread; returns without waiting for the
  // peers. A decision may be lost, or come twice, if a rank dies or leaves meanwhile.
  virtual void tell_decision(const std::string& decision) = 0;
  // Asks all ranks what they have called lately, because this one knows that they differ: all ranks fail as after
  // report_calls(). After watch(); any thread; returns without waiting for the peers.
  virtual void compare_calls() = 0;
  // Tells all ranks that this one calls nothing more, and what it has called; waits until all others have said so
  // too, but not for longer than `wait_ms`, nor once the communicator has failed. Of two ranks that have called
  // different things, or one more than the other, whoever hears of the other fails all with kMismatch and a text
  // that names both. After watch(), before leave(). Returns whether all have said so.
  virtual bool finish(std::int64_t wait_ms) = 0;
  // The control tree of another communicator of some of these ranks, over the same connections and by the same thread,
  // which live as long as any of the two. members[i] is the rank in this tree's numbering that is rank i of the new
  // one, whose numbering all its calls, texts and answers have. This rank is among them. May be null for a single
  // member, as in Job. `id`: the same on all members and used for no other communicator of the job; not 0.
  //
  // Returns at once; members may call it at different times. Before this tree leaves; any thread. The one's failure is
  // not the other's; a rank that dies fails all that it is a member of and has not left.
  //
  // `gives_up`: asked while the new tree's all_gather() waits, at least every kFailureCheckMs; not ok: that is its
  // error. A new tree that has it fails also if a member has left this tree without making its part of the new one.
  // Empty: all members come.
  using GivesUp = std::function<Status()>;
  virtual Result<std::unique_ptr<ControlTree>> split(std::uint64_t id, std::vector<int> members, GivesUp gives_up) = 0;
  Result<std::unique_ptr<ControlTree>> split(std::uint64_t id, std::vector<int> members) {
    return split(id, std::move(members), {});
  }
  // Tells all ranks that this one leaves for good. The last tree of a job to leave in a process ends the connections
  // and the thread. Bounded: < 1 s.
  virtual void leave() = 0;
};

// What is wrong with a rank alone (a system call, its memory) is a remote error to the others.
Status as_told_to_peers(const Status& status);

}  // namespace tutti::internal
