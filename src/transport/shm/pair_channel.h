// The Unix socket of a pair (pair.h): the messages that this side sends, in order, and those that it receives.
//
// Threads: one at a time, under the pair's lock.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "os/unique_fd.h"
#include "transport/shm/layout.h"
#include "transport/shm/pair_messages.h"

namespace tutti::internal::transport::shm {

class PairChannel {
 public:
  // `socket`: connected and non-blocking; the pair closes it. `sent`: the number of this side's messages, for the peer.
  PairChannel(int socket, Line& sent) : socket_(socket), sent_(sent) {}

  // False: not now, or never (failure()). `fd`: the descriptor that the message carries, which lives as long as the
  // pair; -1: none.
  bool try_send(const PairMessage& message, int fd = -1);
  // The same, but queues the message if the socket is full, or as many descriptors are in flight as the kernel allows.
  void send(const PairMessage& message, int fd = -1);
  // Sends queued messages.
  void send_rest();
  [[nodiscard]] bool all_sent() const { return unsent_.empty(); }
  // Whether the message that opens this side of a link has been sent. REQUIRES: send() was called with it.
  [[nodiscard]] bool has_opened(std::uint64_t link) const;

  struct Heard {
    bool arrived = false;  // a message was received; else there is none at present
    Status status;         // if it is an error, the message is lost
    PairMessage message{};
    UniqueFd fd;
  };
  [[nodiscard]] Heard receive();

  // Wakes a peer that waits for a link.
  [[nodiscard]] const UniqueFd& peer_wakeup_fd() const { return peer_wakeup_fd_; }
  void set_peer_wakeup_fd(UniqueFd fd);

  // No more links can be made. The peer notices the end of the connection: both sides make a new pair for later links.
  // The first failure is kept.
  void fail(Status status);
  [[nodiscard]] const Status& failure() const { return failure_; }
  [[nodiscard]] bool is_usable() const;

 private:
  struct Unsent {
    PairMessage message;
    int fd;
  };
  const int socket_;
  Line& sent_;
  std::vector<Unsent> unsent_;  // in order
  UniqueFd peer_wakeup_fd_;
  bool rings_later_ = false;  // set until the peer's wakeup fd arrives
  Status failure_;
};

}  // namespace tutti::internal::transport::shm
