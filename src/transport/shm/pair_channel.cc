#include "transport/shm/pair_channel.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "transport/end_watch.h"
#include "transport/shm/fd_message.h"
#include "transport/wakeup_fd.h"

namespace tutti::internal::transport::shm {

bool PairChannel::try_send(const PairMessage& message, int fd) {
  if (const int error = send_with_fd(socket_, &message, sizeof message, fd); error != 0) {
    // receive() detects a closed end, after the peer's last message. A region that cannot be announced is copied.
    const bool closed = error == EPIPE || error == ECONNRESET;
    if (!is_full(error) && !closed && message.kind != PairMessageKind::kAnnounce) {
      const char* const what = fd >= 0 ? "passing a descriptor to the peer by sendmsg(2)" : "writing to the peer";
      fail(Status::system(what, error));
    }
    return false;
  }
  sent_.value.fetch_add(1, std::memory_order_release);
  // A rank that waits for the link may be sleeping.
  if (message.kind == PairMessageKind::kOpen) {
    rings_later_ = !peer_wakeup_fd_.valid();
    if (!rings_later_) EventFd::ring(peer_wakeup_fd_.get());
  }
  return true;
}

void PairChannel::send(const PairMessage& message, int fd) {
  send_rest();
  if (!unsent_.empty() || !try_send(message, fd)) unsent_.push_back({message, fd});
}

void PairChannel::send_rest() {
  std::size_t sent = 0;
  while (sent < unsent_.size() && try_send(unsent_[sent].message, unsent_[sent].fd)) ++sent;
  unsent_.erase(unsent_.begin(), unsent_.begin() + static_cast<std::ptrdiff_t>(sent));
}

bool PairChannel::has_opened(std::uint64_t link) const {
  return std::none_of(unsent_.begin(), unsent_.end(), [link](const Unsent& unsent) {
    return unsent.message.kind == PairMessageKind::kOpen && unsent.message.number == link;
  });
}

PairChannel::Heard PairChannel::receive() {
  Heard heard;
  const ssize_t n = receive_with_fd(socket_, &heard.message, sizeof heard.message, &heard.fd);
  const int error = n < 0 ? errno : 0;
  if (error == EAGAIN || error == EWOULDBLOCK) return heard;
  if (error != 0 && error != ECONNRESET) {
    heard.arrived = error == EMFILE;  // the message arrived, its descriptor did not
    heard.status = Status::system("receiving the peer's memory", error);
  } else if (n == static_cast<ssize_t>(sizeof heard.message)) {
    heard.arrived = true;
  } else {
    fail(Status::remote("the peer closed the socket over which it tells of its memory"));
  }
  return heard;
}

void PairChannel::set_peer_wakeup_fd(UniqueFd fd) {
  peer_wakeup_fd_ = std::move(fd);
  if (std::exchange(rings_later_, false)) EventFd::ring(peer_wakeup_fd_.get());
}

void PairChannel::fail(Status status) {
  if (failure_.is_ok()) failure_ = std::move(status);
  (void)::shutdown(socket_, SHUT_RDWR);
}

bool PairChannel::is_usable() const {
  return failure_.is_ok() && !EndWatch::hung_up(socket_);
}

}  // namespace tutti::internal::transport::shm
