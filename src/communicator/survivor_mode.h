// Survivor mode: a collective in which ranks die succeeds on all others with the same contributors, or fails on all.
//
// Each collective runs on a communicator of the ranks that live, and writes to memory of this object. Then the ranks
// agree whether all have completed it. If so, each copies its result to the caller's buffer. If ranks have died, the
// others make a communicator without them and begin again: no rank has changed its buffers. So each collective takes
// one agreement (Survivors::agree()) more than otherwise.
//
// Settings::straggler_ms: if a rank is late, the agreement ends without it, and the others leave it out. Its call
// returns kTimeout. With its next call it tells the others that it is back, and waits. When every late rank has done
// so, or one has waited for as long as the limit, the others agree after their current collective to begin a new phase
// with those that are back (late_ranks.h). They tell these how many collectives are over, and a rank that was late
// returns kTimeout for these at once. So the n-th call of each rank stays the same collective.
//
// Threads: run() by one thread at a time, everything else by any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/config.h"
#include "base/status.h"
#include "calls/call.h"
#include "calls/transfer.h"
#include "calls/varying.h"
#include "communicator/scratch.h"
#include "communicator/survivors.h"
#include "os/mutex.h"

namespace tutti::internal {

class Communicator;

class SurvivorMode {
 public:
  // Collective over the ranks of the communicator, which outlives the object.
  static Result<std::unique_ptr<SurvivorMode>> create(Communicator& of);
  ~SurvivorMode();
  SurvivorMode(const SurvivorMode&) = delete;
  SurvivorMode& operator=(const SurvivorMode&) = delete;

  // Each returns when its work is complete on this rank. An error of a collective is one on every rank, and ends the
  // mode; exceptions: the root is absent, refusals, and kTimeout on a rank that was late.
  Status run(const Call& call);
  // The same for a call that needs the data of all ranks: kRemoteError, on all ranks, if one is absent.
  Status run_on_all(const Call& call);
  // Sends and receives are not agreed on: they fail if their peer dies, or if another rank does and the next collective
  // has not found out yet.
  Status run(std::span<const Transfer> transfers);
  // The calls in order, then the transfers together. Returns the first error.
  Status run(std::span<const Call> calls, std::span<const Transfer> transfers);

  // The ranks whose data the last successful collective contains, ascending. Before it, all that lived at creation.
  [[nodiscard]] std::vector<int> contributors() const TUTTI_EXCLUDES(mutex_);
  // Not ok: the communicator cannot be split, because a rank may be absent. Of the thread that runs collectives.
  [[nodiscard]] Status check_split() const;
  // The error that has ended the mode.
  [[nodiscard]] Status status() const TUTTI_EXCLUDES(mutex_);

  // As those of Failures. They also apply to each later communicator of the ranks that live.
  void abort() TUTTI_EXCLUDES(mutex_);
  void revoke() TUTTI_EXCLUDES(mutex_);
  Status fail(std::string_view what, const Status& status) TUTTI_EXCLUDES(mutex_);
  void note_refusal(const Status& status) TUTTI_EXCLUDES(mutex_);
  // Collective: compares the calls of the ranks. No collective may follow.
  Status finalize() TUTTI_EXCLUDES(mutex_);

 private:
  using Members = std::vector<int>;
  // A part of a caller's buffer.
  struct Part {
    std::size_t begin = 0;
    std::size_t bytes = 0;
  };
  // One of the two buffers of a call: the parts of it that the ranks that live use.
  struct Side {
    bool exists = false;              // this rank has it
    bool has_blocks = false;          // one for each rank
    std::vector<Part> parts;          // by rank among the living ones; without blocks a single one
    std::size_t bytes = 0;            // of all parts
    std::vector<std::size_t> counts;  // of the parts, if they vary
    Scratch memory;                   // the parts, one after the other
  };

  SurvivorMode(Failures& whole, std::unique_ptr<Communicator> council, const Settings& settings);
  Status run_unnoted(const Call& call);
  Status run_unnoted(std::span<const Transfer> transfers);
  // An error that does not end the mode is the communicator's last one.
  Status noted(Status result) const;
  Status attempt_until_agreed(const Call& call);
  Status attempt(const Call& call);
  Status note_late();
  void warn_of_late(const Members& late) const;
  // Ends the mode on all ranks, because one has refused a call and calls nothing more.
  Status end_refused(const Call& call, const Status& refusal) TUTTI_EXCLUDES(mutex_);
  // "rank 2 has died"; `rank` is absent.
  [[nodiscard]] std::string describe_absent(int rank) const;
  [[nodiscard]] std::int64_t wait_ms(const Status& own) const;
  void deliver(const Call& call) TUTTI_EXCLUDES(mutex_);
  void lay_out(Side* side, Holds holds, const Call& call, const BlockCounts* blocks, int root) const;
  // Copies the parts of *side between the caller's buffer and its memory.
  static Status pack(Side* side, const void* buffer);
  static void unpack(const Side& side, void* buffer);
  // The rank among the living ones; negative if it has died.
  [[nodiscard]] int index_of(int rank) const;
  [[nodiscard]] bool takes_late() const { return settings_.straggler_ms > 0; }
  // Whether that error of a collective may come from a rank that has died, or is late.
  [[nodiscard]] bool may_be_lost(const Status& error) const {
    return error.code() == Code::kRemoteError || (takes_late() && error.code() == Code::kTimeout);
  }
  // What follows an agreement on a collective that not all ranks have completed. True: begin again. False: this rank is
  // late.
  Result<bool> prepare_retry(const Agreement& agreed, const Status& own);
  // Makes a communicator without these ranks, and without those that have died. Those that are late it leaves out as
  // well, unless no rank was on time. False: this rank is late.
  Result<bool> replace(const Members& excluded, bool leaves_out_late = true) TUTTI_EXCLUDES(mutex_);
  // Collective over the ranks on time: takes back those that the offer of their agreement names.
  Status take_back(const std::string& offer);
  // The same on a late rank: returns when it takes part again.
  Status come_back();
  // False: this rank is late.
  Result<bool> begin_phase(const Invitation& invitation);
  // Of this rank's agreements in survivor mode: how long each may wait for ranks that have been told.
  [[nodiscard]] std::int64_t limit_ms() const;
  // `told`: the verb for the others.
  void end(void (Communicator::*how)(), const char* told) TUTTI_EXCLUDES(mutex_);
  Status end_with(const Status& status) TUTTI_EXCLUDES(mutex_);
  // Why a rank has not completed a collective, although no rank has died.
  [[nodiscard]] Status cause() const;

  [[nodiscard]] std::shared_ptr<Communicator> living() const TUTTI_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    return living_;
  }

  // The rank's number in the communicator, and how many ranks that has.
  [[nodiscard]] int rank() const;
  [[nodiscard]] int ranks() const;
  [[nodiscard]] bool is_complete() const { return absent_.empty(); }

  Failures& whole_;  // of the communicator in this mode
  // A communicator of all ranks with the same numbers, on which they agree: the program's own agreements are on theirs.
  const std::unique_ptr<Communicator> council_;
  const std::int64_t timeout_ms_;  // of an operation
  Settings settings_;              // of living_

  // Of the thread that runs collectives.
  Side input_;
  Side output_;
  VaryingCounts counts_;
  Members absent_;           // all ranks but members_, ascending
  Members late_;             // those of them that lived when they were left out
  bool is_out_ = false;      // the others have left this rank out
  std::uint32_t phase_ = 0;  // the last in which this rank has taken part
  std::uint64_t calls_ = 0;  // collectives that this rank has called
  std::uint64_t over_ = 0;   // those up to this one are over, without this rank

  mutable Mutex mutex_;
  // The thread that runs collectives writes these two with the mutex and reads them without it.
  std::shared_ptr<Communicator> living_;
  std::shared_ptr<const Members> members_;  // ranks of the epoch, by rank of living_
  std::shared_ptr<const Members> contributors_ TUTTI_GUARDED_BY(mutex_);
  Status status_ TUTTI_GUARDED_BY(mutex_);
  void (Communicator::*ended_)() TUTTI_GUARDED_BY(mutex_) = nullptr;  // what has ended all operations
};

}  // namespace tutti::internal
