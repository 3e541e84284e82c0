// The control tree of a job over sockets, as one rank sees it: the connections to its neighbours and the thread that
// watches them, for all communicators that this rank has of the job. See control_tree.h for what it promises, and
// control_comm.h for what is each communicator's own.
//
// The tree composes its parts, each of which has one matter of its own:
//   job_view.h          who is there, and where: what the other parts decide by
//   neighbours.h        the connections, and what waits to be sent
//   comm_table.h        this rank's communicators
//   contact_exchange.h  where every rank listens
//   frame_router.h      what comes from the neighbours
//   kept_frames.h       what is kept for communicators and neighbours to come
//   healing.h           new parents (parent_search.h), and ranks that have lost theirs (awaited_ranks.h)
//   inquiries.h         which ranks have not arrived?
// What a part hears or finds out of ranks it tells by tree_events.h. Only the tree itself changes the view, and tells
// the communicators. An agreement on who has failed belongs beside the inquiries: it reads the view, sends by the
// neighbours, and has frames of its own.
//
// A rank that cannot ask others, for want of descriptors or memory, fails its communicators and is no part of the tree
// any more.
//
// Who leaves says so (kBye) and goes on passing frames from each neighbour to the others until it has heard their ends.
// A neighbour that stays ends its side at once, and looks for another parent; one that leaves as well does so when all
// others of its own have ended theirs. So what ranks say that leave at the same time gets to one that stays.
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

class CommAgent;

class SocketTree : private TreeEvents {
 public:
  explicit SocketTree(TreeSeed seed);
  SocketTree(const SocketTree&) = delete;
  SocketTree& operator=(const SocketTree&) = delete;
  ~SocketTree() override;

  // ---- Any thread
  // Begins to watch. REQUIRES: the job's first communicator is enlisted.
  Status start();
  [[nodiscard]] int rank() const { return view_.rank(); }
  [[nodiscard]] int ranks() const { return view_.ranks(); }
  // In a child of the process, which must not speak for it.
  [[nodiscard]] bool is_forked() const;
  // Where communicators enlist.
  [[nodiscard]] CommTable& comms() { return comms_; }
  // There are commands for the thread.
  void signal() { wake_.ring(); }

  // ---- The tree's thread, for its communicators
  [[nodiscard]] Neighbours& neighbours() { return neighbours_; }
  [[nodiscard]] FrameRouter& router() { return router_; }
  [[nodiscard]] Inquiries& inquiries() { return inquiries_; }
  // To the communicators that are being made of `comm`: the rank has left it.
  void tell_left(CommId comm, int rank);

 private:
  void run();
  void attempt(const std::function<void()>& speak) noexcept;
  void hear_first();
  void watch_once();
  void wake_for_merging();
  void read_ready();
  void handle_commands();
  bool may_go(const CommAgent& comm);
  void welcome(CommAgent* comm);
  void dismiss(CommAgent* comm);
  void depart();
  void end();
  void pass_on_at_once();
  void pass_on_due();
  void on_ended(Neighbour* neighbour);
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

  // The thread's own.
  JobView view_;
  Neighbours neighbours_;
  KeptNotices notices_;
  ContactExchange contacts_;
  Healing healing_;
  Inquiries inquiries_;
  FrameRouter router_;
  std::optional<net::Acceptor> acceptor_;
  std::int64_t go_by_ns_ = 0;  // who leaves waits no longer for a new parent; 0: nobody leaves
  Status broken_;              // why this rank can speak to nobody any more
  bool job_over_ = false;      // all ranks have left the job's first communicator, which this one has left as well
  bool departing_ = false;
  bool ending_ = false;  // the thread is to end
  net::PollSet set_;

  EventFd wake_;
  ServiceThread thread_;
};

}  // namespace control

// The control tree of the job's first communicator.
// REQUIRES: at most one parent; none for rank 0; tree_children() as the other neighbours.
Result<std::unique_ptr<ControlTree>> make_socket_tree(TreeSeed seed);

}  // namespace tutti::internal
