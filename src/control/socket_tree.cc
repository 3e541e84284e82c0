#include "control/socket_tree.h"

#include <fmt/core.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "control/control_comm.h"
#include "control/tree_shape.h"
#include "os/kernel.h"

namespace tutti::internal {
namespace control {

SocketTree::SocketTree(TreeSeed seed)
    : rank_(seed.rank),
      ranks_(seed.ranks),
      owner_(os::kernel().getpid()),
      secret_(seed.secret),
      silence_ms_(seed.silence_ms),
      acceptor_(std::move(seed.acceptor)) {
  contacts_[rank_] = {rank_, std::move(seed.host), seed.pid, std::move(seed.addresses)};
  contact_ranks_ = RankSet(rank_, rank_ + 1);
  for (TreeNeighbour& neighbour : seed.neighbours) {
    net::watch_silence(neighbour.socket.get(), silence_ms_);
    neighbours_.emplace_back(std::move(neighbour));
  }
  // For the thread's own descriptor there is room without further memory.
  set_.add(-1, 0);
  set_.clear(0);
}

// Its communicators hold it, so all are dismissed, and the thread ends with the last of them.
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
  {
    const MutexLock lock(mutex_);
    ended_ = false;
  }
  signal();
  Status started = guarded([&] { return thread_.start([this] { run(); }); });
  if (started.is_ok()) return started;
  const MutexLock lock(mutex_);
  ended_ = true;
  return started;
}

Status SocketTree::enlist(ControlComm* comm) {
  const MutexLock lock(mutex_);
  if (closed_) return Status::invalid_usage("a communicator that has ended cannot be split");
  if (std::find(left_.begin(), left_.end(), comm->id()) != left_.end()) {
    return Status::invalid_usage(
        fmt::format("id {} has served a communicator already. Draw another id by tuttiCommGetGroupId", comm->id()));
  }
  if (!ids_.insert(comm->id()).second) {
    return Status::invalid_usage(fmt::format("another communicator of the job has the id {}", comm->id()));
  }
  arriving_.emplace(comm->id(), comm);
  return {};
}

void SocketTree::signal() {
  wake_.ring();
}

void SocketTree::await_dismissal(CommId id) {
  const MutexLock lock(mutex_);
  while (!ended_ && ids_.contains(id)) changed_.wait(mutex_);
}

bool SocketTree::has_ended() const {
  const MutexLock lock(mutex_);
  return ended_;
}

// ---- For communicators --------------------------------------------------------------------------

Neighbour* SocketTree::parent() {
  const auto found = std::find_if(neighbours_.begin(), neighbours_.end(), [](const Neighbour& neighbour) {
    return neighbour.is_parent && neighbour.socket.valid() && !neighbour.parting;
  });
  return found == neighbours_.end() ? nullptr : &*found;
}

void SocketTree::send(const std::string& frame, Neighbour* to) {
  if (to->socket.valid() && !to->parting) to->writer.queue(frame);
}

void SocketTree::flood(const std::string& frame, const Neighbour* except) {
  for (Neighbour& neighbour : neighbours_) {
    if (&neighbour != except) send(frame, &neighbour);
  }
}

void SocketTree::flood_to(const std::string& members, const std::string& frame, const Neighbour* except) {
  for (Neighbour& neighbour : neighbours_) {
    if (&neighbour != except && leads_to(members, neighbour)) send(frame, &neighbour);
  }
}

bool SocketTree::leads_to(const std::string& members, const Neighbour& neighbour) const {
  if (members.empty() || !attachments_.empty()) return true;
  if (!neighbour.is_parent) return any_member(members, tree_below(neighbour.rank, ranks_));
  return any_member(members, RankSet(0, ranks_).without(tree_below(rank_, ranks_)));
}

std::vector<Neighbour*> SocketTree::listeners() {
  std::vector<Neighbour*> result;
  for (Neighbour& neighbour : neighbours_) {
    if (neighbour.socket.valid() && !neighbour.parting) result.push_back(&neighbour);
  }
  return result;
}

void SocketTree::flush() {
  for (Neighbour& neighbour : neighbours_) flush(&neighbour);
}

// A broken connection is left for reading to discover, since a last message may still be in it.
void SocketTree::flush(Neighbour* neighbour) {
  if (!neighbour->socket.valid()) return;
  if (!neighbour->writer.empty() && !neighbour->writer.flush(neighbour->socket.get()).is_ok()) {
    neighbour->writer = net::FrameWriter();
  }
  if (neighbour->parting && neighbour->writer.empty()) end_side(neighbour);
}

void SocketTree::end_side(Neighbour* neighbour) {
  if (!std::exchange(neighbour->shut, true)) os::kernel().shutdown(neighbour->socket.get(), SHUT_WR);
}

bool SocketTree::all_sent() const {
  return std::all_of(neighbours_.begin(), neighbours_.end(),
                     [](const Neighbour& neighbour) { return !neighbour.socket.valid() || neighbour.writer.empty(); });
}

// Upwards to the next member, which keeps them. Members with none above them are met from the side: every rank that is
// none passes the calls down its other branches, too.
void SocketTree::pass_on_calls(CommId comm, Calls calls, const Neighbour* from) {
  const bool is_member = find(comm) != nullptr;
  if (!calls.down) {
    if (Neighbour* const up = parent(); up != nullptr) send(pack_calls(comm, calls), up);
  }
  if (is_member) return;
  calls.down = true;
  const std::string frame = pack_calls(comm, calls);
  for (Neighbour& neighbour : neighbours_) {
    if (!neighbour.is_parent && &neighbour != from) send(frame, &neighbour);
  }
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
