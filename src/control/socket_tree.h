// The control tree of a job over sockets, as one rank sees it: the connections to its neighbours and the thread that
// watches them, for all communicators that this rank has of the job. See control_tree.h for what it promises, and
// control_comm.h for what is each communicator's own.
//
// Every frame names its communicator, and most are for all ranks: a rank passes them on to every neighbour but the one
// they came from, whether it is a member or not; a tree has no cycles, so each reaches every rank once, and whatever
// one rank says because of what it has heard of another is heard after that everywhere. Members merge parts and leave
// notices on their way (control_comm_receive.cc, _parting.cc). Leave notices go only where members are, as long as no
// rank has moved. A rank keeps nothing of a communicator that it is no member of, but for the time of an inquiry, and
// the last notices that it has passed on: whom it meets later may not have heard them, and who said them may be gone.
//
// A frame names the members of its communicator. So a rank that has not made its own part of a communicator yet knows
// whether it will, and keeps what it hears of it until then: no more than ranks can say before all have come, and of no
// more than 1024 communicators. One of which something has been lost fails when this rank makes its part.
//
// When a rank dies, or leaves for good, those below it look for another parent: the next ancestor, else one that comes
// before them, the lowest first. So every rank listens, and knows from the beginning where the others do (kContacts).
// A parent always has a lower number than its child: whoever follows parents meets no rank twice, so there are no
// cycles, whoever has died and whatever ranks know of that. A rank with nobody before it is the root. All are told of
// the new place (kAttachment), and then each member says again what it has said last in each communicator, and what it
// knows of its failure and of ranks that are gone: that may have been lost on the way. Members that know it already do
// not pass it on.
//
// A rank that waits for another one asks it, by a connection to its listener: a rank that looks for a parent asks those
// before it, and the root asks those that are to look for one and of which nothing is heard, as they may have died when
// nobody was next to them. A rank listens until its leave notice is on its way. So if its host refuses the connection,
// the rank has died, and all are told; while ranks leave, only if it goes on refusing for seconds, as its leave notice
// may have been lost. A rank that answers is alive, and is waited for. One that does neither is stopped, or its host is
// cut off: it counts as dead when the limit for silent hosts has passed. A rank that cannot
// ask, for want of descriptors or memory, fails its communicators and is no part of the tree any more.
//
// Who leaves says so (kBye) and goes on passing frames from each neighbour to the others until it has heard their ends.
// A neighbour that stays ends its side at once, and looks for another parent; one that leaves as well does so when all
// others of its own have ended theirs. So what ranks say that leave at the same time gets to one that stays.
//
// In five files: socket_tree.cc (making, what communicators ask of it), _watch (the thread), _receive (what comes from
// the neighbours), _healing (new parents), _inquiry (who has not arrived?).
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "base/event_fd.h"
#include "base/service_thread.h"
#include "base/status.h"
#include "control/control_messages.h"
#include "control/control_neighbour.h"
#include "control/control_tree.h"
#include "net/acceptor.h"
#include "net/auth.h"
#include "net/dial.h"
#include "net/socket.h"
#include "os/mutex.h"
#include "os/unique_fd.h"

namespace tutti::internal {

// What a rank's part of the tree is made of.
struct TreeSeed {
  int rank = 0;
  int ranks = 1;
  std::int64_t silence_ms = 0;  // the limit of net::is_silent()
  std::vector<TreeNeighbour> neighbours;
  net::Secret secret{};                   // of the job's connections
  std::string host;                       // where this rank runs, for messages,
  std::int32_t pid = 0;                   // likewise,
  std::vector<std::string> addresses;     // and where its acceptor listens
  std::optional<net::Acceptor> acceptor;  // of ranks that look for a parent
};

namespace control {

class ControlComm;

// A rank that is asked whether it becomes the parent.
struct Candidate {
  int rank = -1;
  std::int64_t since_ns = 0;
  std::unique_ptr<net::Dial> dial;
  UniqueFd socket;  // connected, but not yet welcome
  net::FrameReader welcome{0};
  std::size_t entry = 0;
  bool polled = false;
};

// For a new parent. The next candidate is asked when the last has failed or has been silent for a while, and the first
// that answers it is; those on a host where one was silent are asked last.
struct Search {
  std::int64_t begin_ns = 0;  // not before
  std::int64_t end_ns = 0;    // nobody is asked any more
  std::int64_t pause_ms = 0;  // before all are asked once more
  std::int64_t next_ns = 0;   // then the next one, though others may still answer
  bool asked_any = false;
  std::vector<int> left;  // to be asked, in this order
  std::list<Candidate> asked;
  std::set<std::string> silent;            // hosts
  std::map<int, std::int64_t> refused_ns;  // since when the host refuses connections to the rank
  Status shortage;                         // why this rank itself could not dial last
};

// A rank whose parent is gone, and of which nothing has been heard since.
struct Awaited {
  std::int64_t since_ns = 0;
  std::int64_t not_before_ns = 0;   // it is asked again
  std::int64_t asked_ns = 0;        // since when the dial tries
  std::int64_t refused_ns = 0;      // since when its host refuses connections; 0: it does not
  std::int64_t pause_ms = 0;        // after the dial
  std::unique_ptr<net::Dial> dial;  // while the rank is asked
};

class SocketTree {
 public:
  explicit SocketTree(TreeSeed seed);
  SocketTree(const SocketTree&) = delete;
  SocketTree& operator=(const SocketTree&) = delete;
  ~SocketTree();

  // ---- Any thread
  // Begins to watch. REQUIRES: the job's first communicator is enlisted.
  Status start();
  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int ranks() const { return ranks_; }
  // In a child of the process, which must not speak for it.
  [[nodiscard]] bool is_forked() const;
  // From now on the thread knows it. It stays until it is dismissed.
  Status enlist(ControlComm* comm);
  // There are commands for the thread.
  void signal();
  // Waits until the thread knows it no more. REQUIRES: it has been told to leave or to end.
  void await_dismissal(CommId id);
  // The thread has ended, or has never been started.
  [[nodiscard]] bool has_ended() const;

  // ---- The tree's thread, for its communicators
  // To every neighbour but one. Leaves with flush(), or at the end of the thread's round.
  void flood(const std::string& frame, const Neighbour* except);
  // The same to those that lead to members.
  void flood_to(const std::string& members, const std::string& frame, const Neighbour* except);
  // Whether members are behind that neighbour, or may be: where ranks have moved, any may. `members`: as in CommName.
  [[nodiscard]] bool leads_to(const std::string& members, const Neighbour& neighbour) const;
  void send(const std::string& frame, Neighbour* to);
  // The neighbours that can be told anything.
  [[nodiscard]] std::vector<Neighbour*> listeners();
  void flush();
  // What a rank has called, to the nearest members above, or where there are none, to the nearest of all.
  void pass_on_calls(CommId comm, Calls calls, const Neighbour* from);
  [[nodiscard]] Neighbour* parent();
  void inquire(CommId comm, const Question& question);
  // To the communicators that are being made of `comm`: the rank has left it.
  void tell_left(CommId comm, int rank);
  // Neither dead nor gone for good.
  [[nodiscard]] bool is_there(int rank) const;

 private:
  // What this rank knows of the question that is being answered in a communicator.
  struct Round {
    enum class Phase { kAsked, kProbing };
    Phase phase = Phase::kAsked;
    std::uint32_t token = 0;  // of this rank's last inquiry
    Question question;
    std::int64_t due_ns = 0;  // who has given no receipt then is silent; 0: that is judged
    std::int64_t end_ns = 0;  // the answer is given, or waited for no longer
    std::set<int> owing;      // the neighbours that owe a receipt
    std::vector<Absence> absent;
  };
  // What is kept for a communicator that this rank is to become a member of.
  struct Early {
    std::uint64_t number = 0;  // the oldest has the lowest
    std::size_t members = 0;
    std::deque<std::string> frames;
    std::unordered_set<std::string_view> known;  // the same
    bool lost = false;                           // there have been more
  };
  void run();
  void attempt(const std::function<void()>& speak) noexcept;
  void hear_first();
  void watch_once();
  void look_for_silence();
  void read_ready();
  void handle_commands();
  ControlComm* next_arriving() TUTTI_EXCLUDES(mutex_);
  void welcome(ControlComm* comm);
  void dismiss(ControlComm* comm);
  bool close() TUTTI_EXCLUDES(mutex_);
  [[nodiscard]] bool has_left(CommId comm) TUTTI_EXCLUDES(mutex_);
  void dismiss_all() TUTTI_EXCLUDES(mutex_);
  void depart();
  void end_sides();
  static void end_side(Neighbour* neighbour);
  void read_from(Neighbour* from);
  void handle(Neighbour* from, const std::string& frame);
  bool hear(const Header& header, net::Unpacker* unpacker, const std::string& frame, Neighbour* from);
  bool hear_of_ranks(FrameKind kind, net::Unpacker* unpacker, const std::string& frame, Neighbour* from);
  bool hear_for_all(const Header& header, net::Unpacker* unpacker, const std::string& frame, const Neighbour* from);
  bool hear_calls(CommId comm, net::Unpacker* unpacker, const Neighbour* from);
  bool hear_inquiry(const Header& header, net::Unpacker* unpacker, Neighbour* from);
  void on_damage(const Neighbour& from, CommId comm);
  bool keep_early(const Header& header, const std::string& frame);
  void make_room_for_early();
  void replay_early(ControlComm* comm);
  bool keep_passed(const Header& header, const std::string& frame);
  void on_ended(Neighbour* neighbour);
  void on_bye(int rank, const std::string& frame, Neighbour* from);
  void part_from(Neighbour* neighbour);
  void forget_owing(int rank);
  void on_contacts(std::vector<Contact> contacts, const Neighbour* from);
  void pass_on_contacts(bool at_once);
  void pass_on_at_once();
  void pass_on_due();
  void meet(int rank);
  void on_attachment(const Attachment& attachment, const std::string& frame, const Neighbour* from);
  void on_own_death();
  void stand_aside(const Status& why);
  [[nodiscard]] int parent_of(int rank) const;
  [[nodiscard]] bool needs_parent() const;
  [[nodiscard]] bool has_parent() const;
  [[nodiscard]] std::vector<int> candidates() const;
  void look_for_parent();
  void prepare_search(net::PollSet* set);
  void advance_search();
  bool advance(Candidate* candidate);
  bool fill_search();
  void ask_more();
  void ask(int rank);
  void attach(Candidate candidate);
  void give_up();
  void take_in();
  void tell_state(Neighbour* to);
  [[nodiscard]] std::vector<int> below(int rank, bool past_lost) const;
  void await_those_below(int gone);
  void await_again(int rank);
  void forget_root();
  void prepare_awaited(net::PollSet* set);
  void judge_awaited();
  [[nodiscard]] std::int64_t ask_ns(const Awaited& awaited) const;
  void begin_asking(int rank, Awaited* awaited) const;
  bool is_lost(int rank, Awaited* awaited) const;
  [[nodiscard]] bool counts_as_dead(int rank, std::int64_t refused_ns) const;
  [[nodiscard]] std::unique_ptr<net::Dial> dial(int rank, std::uint16_t index) const;
  void say_again();
  void keep_farewell(std::string frame);
  bool may_go(const ControlComm& comm);
  [[nodiscard]] bool is_heard(const ControlComm& comm) const;
  void on_death(const Death& death, const Neighbour* from);
  [[nodiscard]] ControlComm* find(CommId comm) const;
  [[nodiscard]] bool job_is_over() const;
  void flush(Neighbour* neighbour);
  [[nodiscard]] bool all_sent() const;
  void on_inquiry(CommId comm, FrameKind kind, const Inquiry& inquiry, Neighbour* from);
  void on_receipt(CommId comm, std::uint32_t token, const Neighbour* from);
  void on_absence(CommId comm, const Absence& absence);
  void on_answer(CommId comm, const Answer& answer);
  void probe(CommId comm, const Question& question);
  void inquire_again();
  Round* begin(CommId comm, Round::Phase phase, const Question& question);
  void send_inquiry(CommId comm, Round* round, FrameKind kind, Neighbour* to);
  void judge_silence(CommId comm);
  void advance_rounds();
  void wake_for_rounds(net::PollSet* set) const;

  const int rank_;
  const int ranks_;
  const pid_t owner_;
  const net::Secret secret_;
  const std::int64_t silence_ms_;

  // The thread's own.
  std::list<Neighbour> neighbours_;
  std::int64_t next_look_ns_ = 0;  // for silent hosts
  // When the last rank left the job. No clock has been at this beginning.
  std::int64_t last_bye_ns_ = std::numeric_limits<std::int64_t>::min() / 2;
  std::map<CommId, ControlComm*> comms_;
  std::map<CommId, Early> early_;
  std::uint64_t earlies_ = 0;     // how many there have been
  std::deque<CommId> forgotten_;  // the last that were too many
  struct Passed {
    std::deque<std::string> frames;  // the last ones
    std::size_t bytes = 0;
  };
  // Notices of others' communicators. A rank can refuse any number of calls: refusals displace none of the others.
  Passed passed_;
  Passed passed_refusals_;
  bool unheard_ = false;  // some of them have come while this rank was looking for a parent
  std::map<CommId, Round> rounds_;
  std::uint32_t token_ = 0;
  std::map<int, Contact> contacts_;       // by rank, as all that follow
  RankSet contact_ranks_;                 // whose there are,
  std::map<int, RankSet> contacts_told_;  // and which of them each neighbour has
  std::int64_t contacts_due_ns_ = 0;      // those that wait to be merged with others go on; 0: none wait
  std::int64_t contacts_wait_ms_ = kFirstContactsMs;
  static constexpr std::int64_t kFirstContactsMs = 50;
  std::map<int, Death> dead_;
  std::set<int> gone_;                     // for good
  std::map<int, Attachment> attachments_;  // of ranks that have another parent than at first
  std::map<int, Awaited> awaited_;
  std::uint32_t attached_ = 0;  // how often this rank has got another parent
  std::optional<Search> search_;
  std::optional<net::Acceptor> acceptor_;
  std::deque<std::string> farewells_;  // of communicators that this rank has left: of their failures, and leave notices
  bool say_again_ = false;             // what may have been lost
  std::int64_t go_by_ns_ = 0;          // who leaves waits no longer for a new parent; 0: nobody leaves
  Status broken_;                      // why this rank can speak to nobody any more
  bool job_over_ = false;  // all ranks have left the job's first communicator, which this one has left as well
  bool departing_ = false;
  bool ending_ = false;  // the thread is to end
  net::PollSet set_;

  EventFd wake_;
  mutable Mutex mutex_;
  ConditionVariable changed_;
  std::map<CommId, ControlComm*> arriving_ TUTTI_GUARDED_BY(mutex_);
  std::set<CommId> ids_ TUTTI_GUARDED_BY(mutex_);     // of all that are enlisted
  std::deque<CommId> left_ TUTTI_GUARDED_BY(mutex_);  // the last communicators that this rank has left
  bool closed_ TUTTI_GUARDED_BY(mutex_) = false;      // nothing can be enlisted any more
  bool ended_ TUTTI_GUARDED_BY(mutex_) = true;
  ServiceThread thread_;
};

}  // namespace control

// The control tree of the job's first communicator.
// REQUIRES: at most one parent; none for rank 0; tree_children() as the other neighbours.
Result<std::unique_ptr<ControlTree>> make_socket_tree(TreeSeed seed);

}  // namespace tutti::internal
