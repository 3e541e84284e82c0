// The control tree of a job over sockets, as one rank sees it: the connections to its neighbours and the thread that
// watches them, for all communicators of this rank in the job. See control_tree.h for the interface, and control_comm.h
// for the part of each communicator.
//
// The tree composes these parts, each with one task:
//   job_view.h          which ranks exist, and where: the basis for the other parts' decisions
//   neighbours.h        the connections, and the frames to send
//   comm_table.h        this rank's communicators
//   contact_exchange.h  where every rank listens
//   frame_router.h      frames from the neighbours
//   kept_frames.h       frames kept for later communicators and neighbours
//   healing.h           new parents (parent_search.h), and ranks that have lost theirs (awaited_ranks.h)
//   inquiries.h         which ranks are missing?
//   agreements.h        the same result for all members that live
// A part reports what it learns about ranks through tree_events.h. Only the tree itself changes the view, and tells the
// communicators.
//
// A rank that cannot ask others, because descriptors or memory are missing, fails its communicators and leaves the
// tree.
//
// A rank that leaves says so (kBye) and continues to forward frames between its neighbours until they have ended their
// sides. A neighbour that stays ends its side at once, and looks for another parent; one that leaves as well ends its
// side when all its other neighbours have ended theirs. So the messages of ranks that leave at the same time reach
// every rank that stays. A neighbour answers the bye with the same frame when it has forwarded everything. If no
// neighbour has answered, because they have died or are stopped, the rank repeats its last messages to another rank.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/event_fd.h"
#include "base/service_thread.h"
#include "base/status.h"
#include "control/agreements.h"
#include "control/comm_table.h"
#include "control/contact_exchange.h"
#include "control/control_messages.h"
#include "control/control_tree.h"
#include "control/frame_router.h"
#include "control/healing.h"
#include "control/inquiries.h"
#include "control/job_view.h"
#include "control/kept_frames.h"
#include "control/neighbours.h"
#include "control/tree_events.h"
#include "net/acceptor.h"
#include "net/auth.h"
#include "net/socket.h"

namespace tutti::internal {

// The parts from which a rank's tree is made.
struct TreeSeed {
  int rank = 0;
  int ranks = 1;
  std::int64_t silence_ms = 0;  // the limit of net::is_silent()
  std::vector<TreeNeighbour> neighbours;
  net::Secret secret{};  // of the job's connections
  Encryption encryption = Encryption::kOff;
  std::string host;                       // the host on which this rank runs, for messages,
  std::int32_t pid = 0;                   // likewise,
  std::vector<std::string> addresses;     // and the addresses of its acceptor
  std::optional<net::Acceptor> acceptor;  // for ranks that look for a parent
};

namespace control {

class CommAgent;

class SocketTree : private TreeEvents {
 public:
  explicit SocketTree(TreeSeed seed);
  SocketTree(const SocketTree&) = delete;
  SocketTree& operator=(const SocketTree&) = delete;
  ~SocketTree() override;

  // ---- Any thread
  // Starts the thread. REQUIRES: the job's first communicator is enlisted.
  Status start();
  [[nodiscard]] int rank() const { return view_.rank(); }
  [[nodiscard]] int ranks() const { return view_.ranks(); }
  // In a forked child of the process, which must not send for it.
  [[nodiscard]] bool is_forked() const;
  // Where communicators enlist.
  [[nodiscard]] CommTable& comms() { return comms_; }
  // Tells the thread that there are commands.
  void signal() { wake_.ring(); }

  // ---- The tree's thread, for its communicators
  [[nodiscard]] Neighbours& neighbours() { return neighbours_; }
  [[nodiscard]] FrameRouter& router() { return router_; }
  [[nodiscard]] Inquiries& inquiries() { return inquiries_; }
  [[nodiscard]] Agreements& agreements() { return agreements_; }
  // Tells the communicators made from `comm` that the rank has left it.
  void tell_left(CommId comm, int rank);

 private:
  void run();
  void attempt(const std::function<void()>& speak) noexcept;
  void hear_first();
  void watch_once();
  void wake_for_merging();
  void attend_listeners();
  void read_ready();
  void handle_commands();
  bool may_go(const CommAgent& comm);
  void welcome(CommAgent* comm);
  void dismiss(CommAgent* comm);
  void depart();
  void await_receipt();
  void end();
  void pass_on_at_once();
  void pass_on_due();
  void on_ended(Neighbour* neighbour);
  [[nodiscard]] bool remakes_connections() const;
  void part_from(Neighbour* neighbour);
  [[nodiscard]] bool job_is_over() const;

  void on_bye(int rank, const std::string& frame, Neighbour* from) override;
  void on_contacts(std::vector<Contact> contacts, const Neighbour* from) override;
  void on_attachment(const Attachment& attachment, const std::string& frame, const Neighbour* from) override;
  void on_death(const Death& death, const Neighbour* from) override;
  void on_new_neighbour(int rank) override;
  void on_placed() override;
  void on_no_place(const Status& why) override;

  const pid_t owner_;
  CommTable comms_;

  // Used by the thread only.
  JobView view_;
  Neighbours neighbours_;
  KeptNotices notices_;
  ContactExchange contacts_;
  Agreements agreements_;
  Healing healing_;
  Inquiries inquiries_;
  FrameRouter router_;
  std::optional<net::Acceptor> acceptor_;
  std::int64_t attend_ns_ = 0;  // when the rank's other listeners are attended next
  std::int64_t go_by_ns_ = 0;   // a leaving rank waits for a new parent until then; 0: none leaves
  Status broken_;               // why this rank can no longer send
  bool job_over_ = false;       // all ranks have left the job's first communicator, including this one
  bool departing_ = false;
  bool ending_ = false;  // the thread must end
  net::PollSet set_;

  EventFd wake_;
  ServiceThread thread_;
};

}  // namespace control

// The control tree of the job's first communicator. REQUIRES: at most one parent; none for rank 0; tree_children() as
// the other neighbours.
Result<std::unique_ptr<ControlTree>> make_socket_tree(TreeSeed seed);

}  // namespace tutti::internal
