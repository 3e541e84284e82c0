// The ControlTree over sockets. See control_tree.h for what it promises.
//
// Messages, each a frame: gather (a subtree's bytes, upwards), all (everybody's bytes, downwards),
// notice (a failure), leave notice (a rank calls nothing more, and what it has called), calls (of a rank that waits for
// long or is asked, upwards), compare (all ranks are to tell their calls), and those by which ranks find out who has
// not arrived (socket_tree_inquiry.cc). Notices, leave notices and compares are forwarded to every neighbour but the
// one they came from; a tree has no cycles, so each reaches every rank once.
//
// A rank that has left splits the tree, and its parts hear no more of each other. Ranks leave when a job ends, all of
// them within a short time, so no other paths are kept; a failure then passes along the data links
// (transport/end_watch.h).
//
// In six files: socket_tree.cc (making, what other threads ask of it), _receive (what comes from the neighbours),
// _exchange (initialisation), _watch (the watching thread), _inquiry (who has not arrived?) and _parting (leave
// notices, and what ranks have called).
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/service_thread.h"
#include "base/unique_fd.h"
#include "bootstrap/call_ledger.h"
#include "bootstrap/control_messages.h"
#include "bootstrap/control_neighbour.h"
#include "bootstrap/control_tree.h"

namespace tutti::internal {
namespace control {

// Used by one thread at a time: the initialising one, then the watching one. Only the command queue is
// shared.
class SocketTree final : public ControlTree {
 public:
  SocketTree(int rank, int ranks, std::vector<TreeNeighbour> neighbours);
  ~SocketTree() override;
  Result<std::vector<std::string>> all_gather(const std::string& mine, Deadline deadline) override;
  Status watch(std::shared_ptr<FailureState> failure, Witness witness) override;
  void announce_failure(const Status& status) override;
  void report_calls(std::vector<CallRecord> calls) override;
  void ask(Question question) override;
  Status compare_with_departed() override TUTTI_EXCLUDES(mutex_);
  void compare_calls() override;
  bool finish(std::int64_t wait_ms) override;
  void leave() override;
  // Before any gather, when a neighbour is gone: what the neighbours have said last, the end of one being the last of
  // all, and the failure that is known then. The other neighbours are told.
  Status hear_last(const Status& otherwise);

 private:
  // What this rank knows of the question that is being answered.
  struct Round {
    enum class Phase { kIdle, kAsked, kProbing };
    Phase phase = Phase::kIdle;
    std::uint32_t token = 0;  // of this rank's last inquiry
    Question question;
    std::int64_t due_ns = 0;  // who has given no receipt then is silent; 0: that is judged
    std::int64_t end_ns = 0;  // the answer is given, or waited for no longer
    std::vector<Absence> absent;
  };

  void read_from(Neighbour* from);
  void handle(Neighbour* from, const std::string& frame);
  void lost(Neighbour* neighbour);
  void on_notice(const Notice& notice, Neighbour* from);
  void on_leave_notice(const LeaveNotice& leave_notice, Neighbour* from);
  void judge(int rank, const CallSummary& calls);
  void judge_departed();
  [[nodiscard]] std::map<int, CallSummary> departed() const TUTTI_EXCLUDES(mutex_);
  void send_leave_notice();
  void tell_who_waits() TUTTI_EXCLUDES(mutex_);
  bool look_again(Deadline deadline) TUTTI_REQUIRES(mutex_);
  void ask_for_calls(const Neighbour* from);
  [[nodiscard]] CallSummary own_calls() const;
  void on_calls(const Calls& calls);
  void hear_inquiry(Kind kind, const Inquiry& inquiry, Neighbour* from);
  void hear_receipt(std::uint32_t token, Neighbour* from);
  void hear_absence(const Absence& absence);
  void hear_answer(const Answer& answer);
  void inquire(const Question& question);
  void probe(const Question& question);
  void begin(Round::Phase phase, const Question& question);
  void send_inquiry(Kind kind, Neighbour* to);
  void advance_round();
  void judge_silence();
  [[nodiscard]] int round_wait_ms() const;
  [[nodiscard]] Whereabouts whereabouts() const;
  Neighbour* parent();
  void pass_on_kept();
  void flood(const std::string& frame, const Neighbour* except);
  void flush(Neighbour* neighbour);
  Status pump(const std::function<bool()>& finished, Deadline deadline);
  Status exchange(Parts* parts, Deadline deadline);
  Status too_late(const std::vector<int>& waited_for);

  void attempt(const std::function<void()>& speak) noexcept;
  void watch_once();
  void arm(Neighbour* neighbour);
  void handle_commands();
  void broadcast_failure(const Status& failure);
  void depart();
  void stop();
  void signal();
  [[nodiscard]] bool all_sent() const;

  const int rank_;
  const int ranks_;
  const pid_t owner_;  // a forked child must not speak for this process
  std::vector<Neighbour> neighbours_;
  std::shared_ptr<FailureState> failure_;  // null while initialising
  Status early_failure_;
  std::vector<int> early_departed_;
  // While this rank gathers it keeps what it hears from ranks that are through with that: their leave notices and,
  // behind all parts, their failures. To ranks below, which have not all parts yet, it would look like an init that
  // fails.
  bool gathering_ = false;
  std::vector<std::pair<Notice, Neighbour*>> notices_;
  std::vector<std::pair<LeaveNotice, Neighbour*>> leave_notices_;  // not yet passed on, and from where
  bool parted_ = false;                                            // this rank has sent its leave notice
  CallSummary own_parting_;                                        // with this
  bool asked_for_calls_ = false;
  Witness witness_;
  bool any_notice_ = false;
  std::set<int> known_dead_;
  CallLedger ledger_;  // of this rank and those below it
  Round round_;
  bool left_ = false;
  bool ending_ = false;  // the watching thread is to end

  UniqueFd epoll_;
  UniqueFd wake_;
  ServiceThread thread_;
  bool watching_ = false;  // the thread has been started; constant from then on
  mutable Mutex mutex_;
  std::map<int, CallSummary> departed_ TUTTI_GUARDED_BY(mutex_);  // what ranks that have left have called, by rank
  Status announcement_ TUTTI_GUARDED_BY(mutex_);                  // the first
  std::vector<std::vector<CallRecord>> reports_ TUTTI_GUARDED_BY(mutex_);
  std::vector<Question> questions_ TUTTI_GUARDED_BY(mutex_);
  bool comparing_ TUTTI_GUARDED_BY(mutex_) = false;
  bool finishing_ TUTTI_GUARDED_BY(mutex_) = false;
  bool compared_ TUTTI_GUARDED_BY(mutex_) = false;    // own calls with those of all who have left
  bool all_parted_ TUTTI_GUARDED_BY(mutex_) = false;  // all ranks have sent their leave notices
  ConditionVariable parting_changed_;
  bool leaving_ TUTTI_GUARDED_BY(mutex_) = false;
  bool stopping_ TUTTI_GUARDED_BY(mutex_) = false;
};

}  // namespace control

// REQUIRES: at most one parent; none for rank 0; tree_children() as the other neighbours.
std::unique_ptr<ControlTree> make_socket_tree(int rank, int ranks, std::vector<TreeNeighbour> neighbours);

}  // namespace tutti::internal
