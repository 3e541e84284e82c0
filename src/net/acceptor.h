// Accepts connections and authenticates each of them. Unauthenticated peers cost only a limited number of descriptors
// for a limited time.
#pragma once

#include <cstdint>
#include <list>
#include <vector>

#include "net/auth.h"
#include "net/byte_stream.h"
#include "net/shortage.h"
#include "net/socket.h"
#include "os/clock.h"
#include "os/unique_fd.h"

namespace tutti::internal::net {

// A connection whose other end has proven that it knows the job's secret.
struct Authenticated {
  ByteStream stream;
  Claim peer;
  bool is_unix = false;
};

// One thread. In a poll loop: prepare(set), set.wait(), process(set), take().
class Acceptor {
 public:
  static constexpr std::int64_t kHandshakeMs = 5000;  // time limit for the authentication of a connection
  static constexpr std::size_t kMaxPending = 256;     // limit of pending connections
  // With kMaxPending pending, a new connection replaces the oldest if that is at least this old.
  static constexpr std::int64_t kMinPatienceMs = 100;

  // `mine`: the claim of this side towards every dialler.
  Acceptor(const Secret& secret, const Claim& mine) : secret_(secret), mine_(mine) {}
  void add_listener(UniqueFd listener, bool is_unix);
  // The kernel keeps at most `most` connections of each listener for accepting, and drops further ones: diallers
  // repeat them, over TCP after a second or more.
  void limit_queues(int most);
  // Accepts no further connections; pending ones continue.
  void close_listeners() { listeners_.clear(); }

  void prepare(PollSet* set);
  void process(const PollSet& set);
  // Not ok if waiting connections could not be accepted for kShortageMs because of a lack of descriptors or memory,
  // although no pending connection holds a descriptor.
  [[nodiscard]] const Status& shortage() const { return shortage_.lasting(); }
  // Accepted connections have not been authenticated yet.
  [[nodiscard]] bool has_pending() const { return !pending_.empty(); }
  // The connections that have been authenticated since the last call.
  std::vector<Authenticated> take();

 private:
  struct Listener {
    UniqueFd fd;
    bool is_unix = false;
    std::size_t entry = 0;
    bool polled = false;
  };
  struct Pending {
    ByteStream stream;
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
  std::int64_t pause_until_ns_ = 0;  // the listeners are not polled until then, because there was no descriptor
  Shortage shortage_;
  std::int64_t next_warning_ns_ = 0;
  std::size_t unwarned_ = 0;  // connections with a wrong secret since the last warning
};

}  // namespace tutti::internal::net
