// The thread of the control tree: it alone reads, speaks, and changes what the tree and its communicators know.
#include <sys/socket.h>

#include <algorithm>
#include <climits>
#include <utility>

#include "control/control_comm.h"
#include "control/socket_tree.h"

namespace tutti::internal::control {
namespace {

constexpr std::int64_t kGoMs = 400;      // for somebody to be there who hears the leave notice
constexpr std::int64_t kFlushMs = 400;   // for it to leave
constexpr std::int64_t kLingerMs = 200;  // for the neighbours to end their sides, where it has: normally microseconds
constexpr std::int64_t kLookMs = 5;      // how often is looked whether who leaves may go
constexpr std::size_t kLeft = 1024;      // communicators that this rank has left and of which others may still speak
static_assert(kGoMs + kFlushMs < 1000 && kLingerMs <= kFlushMs, "leave() takes less than a second");

}  // namespace

// The job's first communicator is there before anything is heard: nothing is kept for it.
void SocketTree::run() {
  attempt([this] {
    pass_on_contacts(false);
    handle_commands();
    hear_first();
  });
  while (!ending_) attempt([this] { watch_once(); });
  dismiss_all();
}

// What the neighbours have said while this rank still waited for others of its own.
void SocketTree::hear_first() {
  for (Neighbour& neighbour : neighbours_) {
    for (const std::string& frame : std::exchange(neighbour.heard, {})) handle(&neighbour, frame);
  }
}

// A rank without memory to send anything must look dead to its neighbours: no rank is to wait for it.
void SocketTree::attempt(const std::function<void()>& speak) noexcept {
  const Status s = guarded([&] { return speak(), Status(); });
  if (s.is_ok()) return;
  broken_ = s;
  rounds_.clear();
  search_.reset();
  acceptor_.reset();
  awaited_.clear();
  for (const auto& [id, comm] : comms_) comm->fail_here(s);
  for (Neighbour& neighbour : neighbours_) neighbour.close();
  signal();  // whoever wants to leave may have asked for that already
}

// A host that is gone sends no end of its connections. What it is to acknowledge, or the kernel's own questions, show
// that.
void SocketTree::look_for_silence() {
  const std::int64_t now = now_ns();
  if (now < next_look_ns_) return;
  next_look_ns_ = now + net::silence_look_ms(silence_ms_) * 1'000'000;
  for (Neighbour& neighbour : neighbours_) {
    if (neighbour.socket.valid() && net::is_silent(neighbour.socket.get(), silence_ms_)) neighbour.ended = true;
  }
}

void SocketTree::watch_once() {
  set_.clear(static_cast<int>(net::silence_look_ms(silence_ms_)));
  const std::size_t wake = set_.add(wake_.fd(), POLLIN);
  for (Neighbour& neighbour : neighbours_) {
    neighbour.polled = neighbour.socket.valid();
    const int events = neighbour.writer.empty() ? POLLIN : POLLIN | POLLOUT;
    if (neighbour.polled) neighbour.entry = set_.add(neighbour.socket.get(), static_cast<short>(events));
  }
  if (acceptor_) acceptor_->prepare(&set_);
  prepare_search(&set_);
  wake_for_rounds(&set_);
  prepare_awaited(&set_);
  const auto wake_for = [this](std::int64_t due_ns) {
    if (due_ns != 0) set_.wake_at(Deadline::after_ms(std::max<std::int64_t>(0, due_ns - now_ns()) / 1'000'000 + 1));
  };
  wake_for(contacts_due_ns_);
  for (const auto& [id, comm] : comms_) wake_for(comm->due_ns());
  if (go_by_ns_ != 0) set_.wake_at(Deadline::after_ms(kLookMs));
  if (const Status s = set_.wait(); !s.is_ok()) {
    ending_ = true;
    for (const auto& [id, comm] : comms_) comm->fail_here(s.with_context("the control connections cannot be watched"));
    return;
  }
  read_ready();
  look_for_silence();
  take_in();
  advance_search();
  judge_awaited();
  for (Neighbour& neighbour : neighbours_) on_ended(&neighbour);
  say_again();
  if (set_.ready(wake) != 0 || go_by_ns_ != 0) handle_commands();
  advance_rounds();
  pass_on_due();
  flush();
  if (!ending_) neighbours_.remove_if([](const Neighbour& neighbour) { return !neighbour.socket.valid(); });
}

// Whoever has something to say goes before whoever is gone: it may be why.
void SocketTree::read_ready() {
  for (Neighbour& neighbour : neighbours_) {
    if (!neighbour.polled || set_.ready(neighbour.entry) == 0) continue;
    if ((set_.ready(neighbour.entry) & ~POLLOUT) != 0) read_from(&neighbour);
  }
  for (Neighbour& neighbour : neighbours_) on_ended(&neighbour);
}

// Does what other threads have asked for: without memory, or when broken, no more than to let go who leaves.
void SocketTree::handle_commands() {
  wake_.clear();
  while (ControlComm* const comm = next_arriving()) welcome(comm);
  bool waiting = false;
  for (auto at = comms_.begin(); at != comms_.end();) {
    ControlComm* const comm = at->second;
    ++at;
    const bool goes = broken_.is_ok() ? comm->handle_commands() : comm->wants_to_go();
    if (!goes) continue;
    waiting = !may_go(*comm) || waiting;
    if (may_go(*comm)) dismiss(comm);
  }
  if (!waiting) go_by_ns_ = 0;
}

// While there is nobody to hear its leave notice, a rank stays, but not for long.
bool SocketTree::may_go(const ControlComm& comm) {
  if (!comm.has_parted() || is_heard(comm)) return true;
  if (go_by_ns_ == 0) go_by_ns_ = now_ns() + kGoMs * 1'000'000;
  return now_ns() >= go_by_ns_;
}

// A rank that has become the root may have nobody below it yet.
bool SocketTree::is_heard(const ControlComm& comm) const {
  if (comm.is_over() && !unheard_) return true;
  if (search_) return false;
  return awaited_.empty() || std::any_of(neighbours_.begin(), neighbours_.end(),
                                         [](const Neighbour& n) { return n.socket.valid() && !n.parting; });
}

ControlComm* SocketTree::next_arriving() {
  const MutexLock lock(mutex_);
  if (arriving_.empty()) return nullptr;
  return comms_.insert(arriving_.extract(arriving_.begin())).position->second;
}

// From here on it hears for itself. What came before is said to it once more.
void SocketTree::welcome(ControlComm* comm) {
  if (!broken_.is_ok()) return comm->fail_here(broken_);
  if (parent() == nullptr) look_for_parent();
  replay_early(comm);
  for (const auto& [rank, death] : dead_) comm->hear_death(death);
  for (const int rank : gone_) comm->hear_bye(rank);
  if (const ControlComm* const made_of = find(comm->parent()); made_of != nullptr) comm->hear_departed(*made_of);
}

// Nobody misses anybody any more, as far as this rank knows.
bool SocketTree::job_is_over() const {
  const ControlComm* const whole = find(0);
  return (job_over_ || (whole != nullptr && whole->is_over())) &&
         std::all_of(comms_.begin(), comms_.end(), [](const auto& entry) { return entry.second->is_over(); });
}

void SocketTree::tell_left(CommId comm, int rank) {
  for (const auto& [id, other] : comms_) other->hear_left(comm, rank);
}

bool SocketTree::has_left(CommId comm) {
  const MutexLock lock(mutex_);
  return std::find(left_.begin(), left_.end(), comm) != left_.end();
}

// The last one takes the tree with it.
void SocketTree::dismiss(ControlComm* comm) {
  const CommId id = comm->id();
  const bool has_left = comm->has_parted() && broken_.is_ok();
  // Without memory for this, a little may be kept in vain of what comes late.
  static_cast<void>(guarded([&] {
                      {
                        const MutexLock lock(mutex_);
                        left_.push_back(id);
                        if (left_.size() > kLeft) left_.pop_front();
                      }
                      if (!has_left) return Status();
                      flush();  // the process may end as soon as the caller knows that the communicator has gone
                      for (std::string& frame : comm->farewell()) keep_farewell(std::move(frame));
                      return Status();
                    }).is_ok());
  job_over_ = job_over_ || (id == 0 && comm->is_over());
  comms_.erase(id);
  if (comms_.empty() && close()) {
    ending_ = true;
    if (has_left) depart();
    return;
  }
  const MutexLock lock(mutex_);
  ids_.erase(id);
  changed_.notify_all();
}

// False if a communicator is arriving.
bool SocketTree::close() {
  const MutexLock lock(mutex_);
  if (arriving_.empty()) closed_ = true;
  return closed_;
}

void SocketTree::dismiss_all() {
  for (Neighbour& neighbour : neighbours_) neighbour.close();
  acceptor_.reset();
  const MutexLock lock(mutex_);
  closed_ = true;
  ended_ = true;
  changed_.notify_all();
}

// What comes until the neighbours have ended their sides is passed on: one may leave as well, and not have heard yet
// that this rank does. Besides, closing a socket with unread bytes resets it, which may overtake the leave notice on
// its way. Until then this rank answers those that ask it, and becomes nobody's parent: a rank whose host refuses
// connections counts as dead.
void SocketTree::depart() {
  departing_ = true;
  search_.reset();
  awaited_.clear();
  flood(pack_bye(rank_), nullptr);
  const Deadline flushed = Deadline::after_ms(kFlushMs);
  const Deadline closed = Deadline::after_ms(kLingerMs);
  for (;;) {
    flush();
    end_sides();
    bool open = false;
    set_.clear(static_cast<int>(kFlushMs));
    for (Neighbour& neighbour : neighbours_) {
      const int events = (neighbour.ended ? 0 : POLLIN) | (neighbour.writer.empty() ? 0 : POLLOUT);
      if (!neighbour.socket.valid() || events == 0) continue;
      set_.add(neighbour.socket.get(), static_cast<short>(events));
      open = true;
    }
    if (acceptor_) acceptor_->prepare(&set_);
    const Deadline& until = all_sent() ? closed : flushed;
    set_.wake_at(until);
    if (!open || until.passed() || !set_.wait().is_ok()) return;
    if (acceptor_) acceptor_->process(set_);
    if (acceptor_) static_cast<void>(acceptor_->take());
    for (Neighbour& neighbour : neighbours_) read_from(&neighbour);
  }
}

// Towards a neighbour, when all the others have ended theirs: nothing more will have to be passed on to it.
void SocketTree::end_sides() {
  for (Neighbour& neighbour : neighbours_) {
    const bool last = std::all_of(neighbours_.begin(), neighbours_.end(), [&](const Neighbour& other) {
      return &other == &neighbour || !other.socket.valid() || other.ended;
    });
    if (last && neighbour.socket.valid() && neighbour.writer.empty()) end_side(&neighbour);
  }
}

}  // namespace tutti::internal::control
