#include "bootstrap/socket_tree.h"

#include <unistd.h>

#include <utility>

#include "net/socket.h"

namespace tutti::internal {
namespace control {

SocketTree::SocketTree(int rank, int ranks, std::vector<TreeNeighbour> neighbours)
    : rank_(rank), ranks_(ranks), owner_(::getpid()) {
  for (TreeNeighbour& neighbour : neighbours) {
    net::set_keep_alive(neighbour.socket.get());
    neighbours_.emplace_back(std::move(neighbour));
  }
}

SocketTree::~SocketTree() {
  if (owner_ == ::getpid()) {
    stop();
  } else {
    thread_.forget();
  }
}

// ---- From other threads -------------------------------------------------------------------------

void SocketTree::announce_failure(const Status& status) {
  if (owner_ != ::getpid() || status.is_ok()) return;
  if (!watching_) {
    if (!left_) attempt([&] { broadcast_failure(status); });
    return;
  }
  const MutexLock lock(mutex_);
  // Perhaps another thread has sent its leave notice meanwhile: nobody listens any more.
  if (leaving_ || stopping_) return;
  if (announcement_.is_ok()) announcement_ = status;
  signal();
}

void SocketTree::report_calls(std::vector<CallRecord> calls) {
  if (owner_ != ::getpid() || !watching_) return;
  const MutexLock lock(mutex_);
  if (leaving_ || stopping_) return;
  reports_.push_back(std::move(calls));
  signal();
}

void SocketTree::ask(Question question) {
  if (owner_ != ::getpid() || !watching_) return;
  const MutexLock lock(mutex_);
  if (leaving_ || stopping_) return;
  questions_.push_back(std::move(question));
  signal();
}

void SocketTree::leave() {
  if (owner_ != ::getpid()) return;
  if (!thread_.running()) {
    if (!left_) attempt([this] { depart(); });
    return;
  }
  {
    const MutexLock lock(mutex_);
    leaving_ = true;
  }
  signal();
  thread_.join();
}

void SocketTree::stop() {
  if (!thread_.running()) return;
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  signal();
  thread_.join();
}

void SocketTree::signal() {
  const std::uint64_t one = 1;
  // Fails only if the counter is full: the thread is awake then.
  if (::write(wake_.get(), &one, sizeof one) < 0) return;
}

}  // namespace control

std::unique_ptr<ControlTree> make_socket_tree(int rank, int ranks, std::vector<TreeNeighbour> neighbours) {
  return std::make_unique<control::SocketTree>(rank, ranks, std::move(neighbours));
}

}  // namespace tutti::internal
