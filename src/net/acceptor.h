// Accepts connections and lets each prove that it belongs to the job. Strangers cost nothing but a
// bounded number of descriptors for a bounded time.
#pragma once

#include <cstdint>
#include <list>
#include <vector>

#include "net/auth.h"
#include "net/shortage.h"
#include "net/socket.h"
#include "os/clock.h"
#include "os/unique_fd.h"

namespace tutti::internal::net {

// A connection whose other end has proven that it knows the secret.
struct Authenticated {
  UniqueFd socket;
  Claim peer;
  bool is_unix = false;
};

// One thread. In a poll loop: prepare(set), set.wait(), process(set), take().
class Acceptor {
 public:
  static constexpr std::int64_t kHandshakeMs = 5000;  // for a connection to prove itself
  static constexpr std::size_t kMaxPending = 256;     // connections that have not yet
  // With kMaxPending waiting, a new connection replaces the oldest, once that is as old as this.
  static constexpr std::int64_t kMinPatienceMs = 100;

  // `mine`: what this side claims towards every dialler.
  Acceptor(const Secret& secret, const Claim& mine) : secret_(secret), mine_(mine) {}
  void add_listener(UniqueFd listener, bool is_unix);
  // No further connections; those that are pending go on.
  void close_listeners() { listeners_.clear(); }

  void prepare(PollSet* set);
  void process(const PollSet& set);
  // Not ok if connections wait that could not be accepted for kShortageMs for want of a descriptor or memory, although
  // no stranger has one any more.
  [[nodiscard]] const Status& shortage() const { return shortage_.lasting(); }
  // The connections that have proven themselves since the last call.
  std::vector<Authenticated> take();

 private:
  struct Listener {
    UniqueFd fd;
    bool is_unix = false;
    std::size_t entry = 0;
    bool polled = false;
  };
  struct Pending {
    UniqueFd fd;
    bool is_unix;
    Handshake handshake;
    std::int64_t accepted_ns;
    std::size_t entry = 0;
    bool polled = false;
  };
  void accept_from(Listener* listener);
  bool make_room();
  void give_up_strangers();
  bool advance(Pending* pending);
  void warn_of_refusal(const Pending& pending, const Status& why);

  Secret secret_;
  Claim mine_;
  std::vector<Listener> listeners_;
  std::list<Pending> pending_;  // oldest first
  std::vector<Authenticated> ready_;
  std::int64_t pause_until_ns_ = 0;  // the listeners rest while no descriptor is to be had
  Shortage shortage_;
  std::int64_t next_warning_ns_ = 0;
  std::size_t unwarned_ = 0;  // connections with a wrong secret since the last warning
};

}  // namespace tutti::internal::net
