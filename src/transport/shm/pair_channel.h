// The Unix socket of a pair (pair.h): what this side tells the peer, in order, and what it hears.
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
  // `socket`: connected and non-blocking; the pair closes it. `sent`: counts this side's messages, for the peer.
  PairChannel(int socket, Line& sent) : socket_(socket), sent_(sent) {}

  // False: not now, or never (failure()). `fd`: that the message carries, which lives as long as the pair; -1: none.
  bool try_send(const PairMessage& message, int fd = -1);
  // The same; at the next occasion if the socket is full, or as many descriptors are under way as the kernel allows.
  void send(const PairMessage& message, int fd = -1);
  // What could not be sent so far.
  void send_rest();
  [[nodiscard]] bool all_sent() const { return unsent_.empty(); }
  // Whether the message that opens this side of a link has been sent. REQUIRES: send() has had it.
  [[nodiscard]] bool has_opened(std::uint64_t link) const;

  struct Heard {
    bool arrived = false;  // a message; else there is none at present
    Status status;         // if it is bad, the message is lost
    PairMessage message{};
    UniqueFd fd;
  };
  [[nodiscard]] Heard receive();

  // By which a peer that waits for a link is woken.
  [[nodiscard]] const UniqueFd& peer_wakeup_fd() const { return peer_wakeup_fd_; }
  void set_peer_wakeup_fd(UniqueFd fd);

  // No more links can be made. The peer learns it by the end of the connection: both sides make a new pair for the
  // links to come. The first failure stays.
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
  std::vector<Unsent> unsent_;  // in their order
  UniqueFd peer_wakeup_fd_;
  bool rings_later_ = false;  // once it has the peer's wakeup fd
  Status failure_;
};

}  // namespace tutti::internal::transport::shm
