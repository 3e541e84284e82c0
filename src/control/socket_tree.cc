// Creates the tree and its thread: only that thread reads, sends, and changes the state of the tree and its
// communicators.
#include "control/socket_tree.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "control/comm_agent.h"
#include "control/control_comm.h"
#include "os/clock.h"
#include "os/kernel.h"

namespace tutti::internal {
namespace control {
namespace {

constexpr std::int64_t kGoMs = 400;         // the time to find a rank that receives the leave notice
constexpr std::int64_t kFlushMs = 400;      // the time to send it
constexpr std::int64_t kLingerMs = 200;     // the time for the neighbours to end their sides: normally microseconds
constexpr std::int64_t kLeavingLookMs = 5;  // how often the tree checks whether a leaving rank may go
// How often the rank's other listeners are attended, and while connections there are not authenticated yet. An acceptor
// replaces those that are older than 100 ms.
constexpr std::int64_t kAttendMs = 5000;
constexpr std::int64_t kAttendAgainMs = 200;
static_assert(kGoMs + kFlushMs < 1000 && kLingerMs <= kFlushMs, "leave() takes less than a second");

}  // namespace

SocketTree::SocketTree(TreeSeed seed)
    : owner_(os::kernel().getpid()),
      view_(seed.ranks, {seed.rank, std::move(seed.host), seed.pid, std::move(seed.addresses)}),
      neighbours_(view_, seed.silence_ms),
      contacts_(&view_, &neighbours_),
      agreements_(view_, comms_, &neighbours_),
      healing_(&view_, &neighbours_, comms_, agreements_, notices_, seed.secret, seed.encryption, seed.silence_ms,
               this),
      inquiries_(view_, comms_, healing_.search(), &neighbours_),
      router_(view_, comms_, &neighbours_, &healing_, &inquiries_, &agreements_, &notices_, this),
      acceptor_(std::move(seed.acceptor)) {
  for (TreeNeighbour& neighbour : seed.neighbours) neighbours_.add(std::move(neighbour));
  // Reserves the entry for the thread's own descriptor, so that it needs no memory later.
  set_.add(-1, 0);
  set_.clear(0);
}

// Its communicators keep it, so all are dismissed, and the thread ends with the last of them.
SocketTree::~SocketTree() {
  if (is_forked()) thread_.forget();
}

bool SocketTree::is_forked() const {
  return owner_ != os::kernel().getpid();
}

Status SocketTree::start() {
  auto wake = EventFd::create();
  if (!wake.is_ok()) return wake.status();
  wake_ = std::move(*wake);
  comms_.begin();
  signal();
  Status started = guarded([&] { return thread_.start([this] { run(); }); });
  if (!started.is_ok()) comms_.end();
  return started;
}

// The job's first communicator arrives before any frame is handled: no frame is kept for it.
void SocketTree::run() {
  attempt([this] {
    contacts_.pass_on(false);
    handle_commands();
    hear_first();
  });
  while (!ending_) attempt([this] { watch_once(); });
  end();
}

// Handles what the neighbours sent while this rank still waited for other neighbours.
void SocketTree::hear_first() {
  for (Neighbour& neighbour : neighbours_.all()) {
    for (const std::string& frame : std::exchange(neighbour.heard, {})) router_.handle(&neighbour, frame);
  }
}

// A rank without memory to send must look dead to its neighbours: no rank may wait for it.
void SocketTree::attempt(const std::function<void()>& speak) noexcept {
  const Status s = guarded([&] { return speak(), Status(); });
  if (s.is_ok()) return;
  on_no_place(s);
  signal();  // a thread may have asked to leave before
}

void SocketTree::watch_once() {
  set_.clear(static_cast<int>(neighbours_.silence_look_ms()));
  const std::size_t wake = set_.add(wake_.fd(), POLLIN);
  neighbours_.prepare(&set_);
  if (acceptor_) acceptor_->prepare(&set_);
  healing_.prepare(&set_);
  inquiries_.prepare(&set_);
  agreements_.prepare(&set_);
  for (const auto& [id, comm] : comms_.all()) {
    if (comm->prepare_reconnects(&set_)) break;
  }
  wake_for_merging();
  if (go_by_ns_ != 0) set_.wake_at(Deadline::after_ms(kLeavingLookMs));
  set_.wake_at(Deadline::after_ms(std::max<std::int64_t>(0, attend_ns_ - now_ns()) / kNsPerMs + 1));
  if (const Status s = set_.wait(); !s.is_ok()) {
    ending_ = true;
    const Status why = s.with_context("the control connections cannot be watched");
    for (const auto& [id, comm] : comms_.all()) comm->cut_off(why);
    return;
  }
  read_ready();
  neighbours_.look_for_silence();
  if (acceptor_) {
    acceptor_->process(set_);
    healing_.take_in(acceptor_->take());
  }
  healing_.advance(set_);
  for (Neighbour& neighbour : neighbours_.all()) on_ended(&neighbour);
  for (const auto& [id, comm] : comms_.all()) {
    if (comm->process_reconnects(set_)) break;
  }
  healing_.resend();
  if (set_.ready(wake) != 0 || go_by_ns_ != 0) handle_commands();
  inquiries_.advance();
  agreements_.advance();
  attend_listeners();
  pass_on_due();
  neighbours_.flush();
  if (!ending_) neighbours_.remove_closed();
}

void SocketTree::wake_for_merging() {
  const auto wake_for = [this](std::int64_t due_ns) {
    if (due_ns != 0) set_.wake_at(Deadline::after_ms(std::max<std::int64_t>(0, due_ns - now_ns()) / 1'000'000 + 1));
  };
  wake_for(contacts_.due_ns());
  for (const auto& [id, comm] : comms_.all()) wake_for(comm->due_ns());
}

void SocketTree::attend_listeners() {
  const std::int64_t now = now_ns();
  if (now < attend_ns_) return;
  std::optional<bool> again;
  // If there is no memory for strangers, the next round comes later.
  (void)guarded([&] {
    for (auto at = comms_.all().begin(); at != comms_.all().end() && !again; ++at)
      again = at->second->attend_listeners();
    return Status();
  });
  attend_ns_ = now + (again.value_or(false) ? kAttendAgainMs : kAttendMs) * kNsPerMs;
}

// Frames are read before ended connections are handled: a frame may contain the reason.
void SocketTree::read_ready() {
  for (Neighbour& neighbour : neighbours_.all()) {
    if (!neighbour.polled || set_.ready(neighbour.entry) == 0) continue;
    if ((set_.ready(neighbour.entry) & ~POLLOUT) != 0) router_.read_from(&neighbour);
  }
  for (Neighbour& neighbour : neighbours_.all()) on_ended(&neighbour);
}

// ---- Communicators ------------------------------------------------------------------------------

// Executes the commands of other threads. If memory is missing, or the tree is broken, it only lets leaving
// communicators go.
void SocketTree::handle_commands() {
  wake_.clear();
  while (CommAgent* const comm = comms_.next_arriving()) welcome(comm);
  bool waiting = false;
  for (auto at = comms_.all().begin(); at != comms_.all().end();) {
    CommAgent* const comm = at->second;
    ++at;
    const bool goes = broken_.is_ok() ? comm->handle_commands() : comm->wants_to_go();
    if (!goes) continue;
    waiting = !may_go(*comm) || waiting;
    if (may_go(*comm)) dismiss(comm);
  }
  if (!waiting && !departing_) go_by_ns_ = 0;
}

// While no rank receives its leave notice, a rank stays, but only for a limited time.
bool SocketTree::may_go(const CommAgent& comm) {
  if (!comm.leave_notices().has_parted() || healing_.is_heard(comm.leave_notices().is_over())) return true;
  if (go_by_ns_ == 0) go_by_ns_ = now_ns() + kGoMs * kNsPerMs;
  return now_ns() >= go_by_ns_;
}

// From now on it receives its frames itself. Earlier frames are replayed.
void SocketTree::welcome(CommAgent* comm) {
  if (!broken_.is_ok()) return comm->cut_off(broken_);
  if (neighbours_.parent() == nullptr) healing_.look_for_parent();
  router_.replay_early(comm);
  for (const auto& [rank, death] : view_.dead()) comm->hear_death(death);
  for (const int rank : view_.gone()) comm->hear_bye(rank);
  if (const CommAgent* const made_of = comms_.find(comm->parent()); made_of != nullptr) comm->hear_departed(*made_of);
}

// Whether no rank waits for another any more, as far as this rank knows.
bool SocketTree::job_is_over() const {
  const CommAgent* const whole = comms_.find(0);
  return (job_over_ || (whole != nullptr && whole->leave_notices().is_over())) && comms_.all_over();
}

void SocketTree::tell_left(CommId comm, int rank) {
  for (const auto& [id, other] : comms_.all()) other->hear_left(comm, rank);
}

// The last communicator ends the tree.
void SocketTree::dismiss(CommAgent* comm) {
  const CommId id = comm->id();
  const bool has_left = comm->leave_notices().has_parted() && broken_.is_ok();
  const bool is_over = comm->leave_notices().is_over();
  // If memory for this is missing, a few late frames may be kept unnecessarily.
  static_cast<void>(guarded([&] {
                      comms_.add_left(id);
                      if (!has_left) return Status();
                      // The process may end as soon as the caller knows that the communicator has gone.
                      neighbours_.flush();
                      for (std::string& frame : comm->farewell()) notices_.keep_farewell(std::move(frame));
                      return Status();
                    }).is_ok());
  job_over_ = job_over_ || (id == 0 && is_over);
  if (!comms_.remove(id)) return comms_.release(id);
  ending_ = true;
  if (!has_left) return;
  depart();
  if (!is_over) await_receipt();
}

void SocketTree::end() {
  neighbours_.close_all();
  acceptor_.reset();
  comms_.end();
}

// Forwards frames until the neighbours have ended their sides: a neighbour may leave as well, and not know yet that
// this rank does. Besides, closing a socket with unread bytes resets it, and the reset may overtake the leave notice.
// Until then this rank answers ranks that ask it, but does not become a parent: a rank whose host refuses connections
// counts as dead.
void SocketTree::depart() {
  departing_ = true;
  healing_.stop();
  static_cast<void>(view_.add_bye(rank(), now_ns()));
  neighbours_.flood(pack_bye(rank()), nullptr);
  const Deadline flushed = Deadline::after_ms(kFlushMs);
  const Deadline closed = Deadline::after_ms(kLingerMs);
  for (;;) {
    agreements_.advance();
    neighbours_.flush();
    neighbours_.end_sides();
    bool open = false;
    set_.clear(static_cast<int>(kFlushMs));
    for (Neighbour& neighbour : neighbours_.all()) {
      const int events = (neighbour.ended ? 0 : POLLIN) | (neighbour.writer.empty() ? 0 : POLLOUT);
      if (!neighbour.stream.valid() || events == 0) continue;
      set_.add(neighbour.stream, static_cast<short>(events));
      open = true;
    }
    if (acceptor_) acceptor_->prepare(&set_);
    const Deadline& until = neighbours_.all_sent() ? closed : flushed;
    set_.wake_at(until);
    if (!open || until.passed() || !set_.wait().is_ok()) return;
    if (acceptor_) acceptor_->process(set_);
    if (acceptor_) static_cast<void>(acceptor_->take());
    for (Neighbour& neighbour : neighbours_.all()) router_.read_from(&neighbour);
  }
}

// If all neighbours have died, or are stopped, before they have forwarded this rank's last messages, no other rank
// knows that it has left, and it would count as dead. So it sends them to any rank that answers, or that looks for a
// parent.
void SocketTree::await_receipt() {
  if (go_by_ns_ == 0) go_by_ns_ = now_ns() + kGoMs * kNsPerMs;
  const auto is_done = [this] {
    return neighbours_.any_knows_bye() || !view_.is_any_there() || !broken_.is_ok() || now_ns() >= go_by_ns_;
  };
  if (is_done()) return;
  healing_.look_for_receiver();
  while (!is_done() && (healing_.search().is_on() || neighbours_.has_parent())) watch_once();
}

// Sends messages that wait to be merged before this rank's later messages.
void SocketTree::pass_on_at_once() {
  contacts_.pass_on(true);
  for (const auto& [id, comm] : comms_.all()) comm->pass_on_at_once();
}

void SocketTree::pass_on_due() {
  const std::int64_t now = now_ns();
  contacts_.advance(now);
  for (const auto& [id, comm] : comms_.all()) comm->advance(now);
}

// ---- Ranks --------------------------------------------------------------------------------------

// The connection has ended. That is expected if the neighbour has announced it.
void SocketTree::on_ended(Neighbour* neighbour) {
  if (!neighbour->ended || !neighbour->stream.valid()) return;
  neighbour->close();
  neighbour->writer = net::FrameWriter();
  inquiries_.forget_owing(neighbour->rank);
  // A rank that has not chosen this one as its parent may have found another by now. If it has died, others notice.
  const bool was_here = neighbour->confirmed && !neighbour->said_bye;
  const bool is_lost = was_here && !departing_;
  // One that dies before it is confirmed: ranks that know of its choice expect this one to notice.
  const bool has_chosen = view_.parent_of(neighbour->rank) == rank() && !neighbour->said_bye && !departing_;
  if ((is_lost || has_chosen) && !neighbour->silent && remakes_connections()) {
    if (!neighbour->is_parent) healing_.ask_at_once(neighbour->rank);
  } else if (is_lost) {
    on_death({neighbour->rank, neighbour->host, neighbour->pid}, neighbour);
  }
  if (neighbour->is_parent && !neighbour->parting) healing_.look_for_parent(is_lost);
}

bool SocketTree::remakes_connections() const {
  return std::any_of(comms_.all().begin(), comms_.all().end(),
                     [](const auto& comm) { return comm.second->remakes_connections(); });
}

// Tells the other ranks first: a thread that learns of a death here may end this process.
void SocketTree::on_death(const Death& death, const Neighbour* from) {
  if (death.rank == rank()) {
    // The other ranks have given this one up: its connections broke, or it was silent for too long.
    return on_no_place(Status::remote("the other ranks have lost the connection to this one and gone on without it"));
  }
  if (!view_.add_death(death)) return;
  pass_on_at_once();
  neighbours_.flood(pack_death(death), from);
  neighbours_.flush();
  for (const auto& [id, comm] : comms_.all()) comm->hear_death(death);
  for (Neighbour& neighbour : neighbours_.all()) {
    if (neighbour.rank == death.rank && neighbour.stream.valid()) neighbour.ended = true;
  }
  healing_.await_below(death.rank);
  agreements_.look_again();
}

// The rank has left for good.
void SocketTree::on_bye(int rank, const std::string& frame, Neighbour* from) {
  if (rank == this->rank()) {
    from->knows_bye = departing_;
    return;
  }
  const bool leaves = from->rank == rank && !std::exchange(from->said_bye, true);
  if (leaves && !departing_) part_from(from);
  if (view_.add_bye(rank, now_ns())) {
    pass_on_at_once();
    if (!job_is_over()) neighbours_.flood(frame, from);
    for (const auto& [id, comm] : comms_.all()) comm->hear_bye(rank);
    healing_.await_below(rank);
    agreements_.look_again();
  }
  if (leaves) from->receipt = Neighbour::Receipt::kOwed;
}

void SocketTree::part_from(Neighbour* neighbour) {
  neighbour->parting = true;
  inquiries_.forget_owing(neighbour->rank);
  if (neighbour->is_parent) healing_.look_for_parent();
}

void SocketTree::on_contacts(std::vector<Contact> contacts, const Neighbour* from) {
  contacts_.hear(std::move(contacts), *from);
}

void SocketTree::on_attachment(const Attachment& attachment, const std::string& frame, const Neighbour* from) {
  if (!healing_.hear_attachment(attachment, frame, from)) return;
  if (attachment.parent != rank()) {
    inquiries_.forget_owing(attachment.rank);
  } else if (remakes_connections() && !neighbours_.has(attachment.rank)) {
    healing_.ask_at_once(attachment.rank);  // its connection has ended, or is to come
  }
  agreements_.look_again();
}

void SocketTree::on_new_neighbour(int rank) {
  inquiries_.forget_owing(rank);
  contacts_.meet(rank);
  agreements_.meet(rank);
  for (const auto& [id, comm] : comms_.all()) comm->meet(rank);
}

void SocketTree::on_placed() {
  inquiries_.inquire_again();
  agreements_.look_again();
}

// The ranks below look for another parent.
void SocketTree::on_no_place(const Status& why) {
  broken_ = why;
  inquiries_.clear();
  healing_.stop();
  acceptor_.reset();
  for (const auto& [id, comm] : comms_.all()) comm->cut_off(broken_);
  neighbours_.close_all();
}

}  // namespace control

Result<std::unique_ptr<ControlTree>> make_socket_tree(TreeSeed seed) {
  std::vector<int> all(static_cast<std::size_t>(seed.ranks));
  auto tree = std::make_shared<control::SocketTree>(std::move(seed));
  std::iota(all.begin(), all.end(), 0);
  auto comm = std::make_unique<control::ControlComm>(tree, 0, std::move(all));
  if (Status s = comm->enlist(); !s.is_ok()) return s;
  if (Status s = tree->start(); !s.is_ok()) return s;
  return std::unique_ptr<ControlTree>(std::move(comm));
}

}  // namespace tutti::internal
