// Makes the streams of a rank's links anew if their connections break while both ranks live: one for all communicators
// of a family.
//
// Of the two ranks, the one that dialled the link dials each broken stream again, with the same authentication. Then it
// sends {attempt, bytes of this stream that it has received}. The other side ends its old connection, answers {attempt,
// bytes that it has received}, and both continue the stream behind these bytes. TCP delivers in order, so these two
// numbers are everything that the sides must know. Attempts of a stream are numbered from 1; the side that accepts
// refuses numbers that it has passed, so a late connection replaces nothing. It answers {the next number, 0}, with
// which the dialler goes on: another member of the job may have used its numbers.
//
// A connection may break for one side only. If that is the side that does not dial, it connects to the other side and
// asks for the stream: {number of the last attempt, 0}.
//
// The thread of the control tree does all this (Witness), also while the rank computes, or waits in another
// communicator: a peer may need bytes that this rank had sent in an earlier operation. No function here waits for a
// peer.
//
// Threads: add(), remove(), notice() any; prepare() and process() one. Locks are taken in this order: this class's, the
// link's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/event_fd.h"
#include "base/failure.h"
#include "net/address.h"
#include "net/dial.h"
#include "os/mutex.h"
#include "os/unique_fd.h"
#include "transport/connections/listeners.h"

namespace tutti::internal {

// A link whose streams can be made anew. The reconnector calls it; any thread may use the link meanwhile.
class ReconnectingLink {
 public:
  enum class State : std::uint8_t {
    kWhole,
    kEnded,   // the peer has ended its side: perhaps it leaves
    kBroken,  // data no longer passes
    kOver,    // this side needs no connection any more
  };
  struct Condition {
    State state = State::kWhole;
    std::int64_t since_ns = 0;
  };
  virtual ~ReconnectingLink() = default;
  [[nodiscard]] virtual std::size_t streams() const = 0;
  [[nodiscard]] virtual int socket(std::size_t stream) const = 0;
  [[nodiscard]] virtual Condition condition(std::size_t stream) const = 0;
  // The peer, or the kernel, has ended one direction, or both.
  virtual void note_end(std::size_t stream, bool both_directions) = 0;
  // Ends the connection of the stream for good: keeps what the kernel has received. Returns how many bytes of the
  // stream this side has received.
  virtual std::uint64_t stop(std::size_t stream) = 0;
  // After stop(): the stream continues over `made`, first with the bytes behind the first `received`, which the peer
  // has. Returns how many bytes these are. Errors: this side does not have them any more; kSystemError.
  virtual Result<std::uint64_t> resume(std::size_t stream, net::ByteStream made, std::uint64_t received) = 0;
  // Sends them again as far as the kernel has room. True: none is left, or the stream is not whole.
  virtual bool resend(std::size_t stream) = 0;
  // The stream fails for the reason of its break, and `why` it could not be made anew.
  virtual void give_up(std::size_t stream, const std::string& why) = 0;
};

class Reconnector {
 public:
  // The other side of a link.
  struct Peer {
    std::uint64_t communicator = 0;
    int rank = -1;               // in the communicator
    int job_rank = -1;           // in the communicator that joined
    bool dialled = false;        // by this side
    bool first_is_sure = false;  // as DialOptions
    std::vector<net::Address> addresses;
    std::string name;             // for messages
    std::int64_t silence_ms = 0;  // the limit of net::is_silent()
  };

  // `rank`: this one, in the communicator that joined.
  Reconnector(const Secret& secret, int rank, Encryption encryption, std::shared_ptr<Listeners> listeners)
      : secret_(secret), rank_(rank), encryption_(encryption), listeners_(std::move(listeners)) {}
  Reconnector(const Reconnector&) = delete;
  Reconnector& operator=(const Reconnector&) = delete;
  ~Reconnector();

  // Must come before the first add(), and before the thread of the tree waits. Repeated calls do nothing.
  Status begin() TUTTI_EXCLUDES(mutex_);
  [[nodiscard]] bool has_begun() TUTTI_EXCLUDES(mutex_);
  // The link and the failure exist until remove(). `limit_ms`: if the peer's host cannot be reached for this time after
  // a break, the stream fails. When it is reached, the peer has as long as it lives.
  Status add(ReconnectingLink* link, Peer peer, const FailureState& failure, std::int64_t limit_ms)
      TUTTI_EXCLUDES(mutex_);
  void remove(const ReconnectingLink* link) noexcept TUTTI_EXCLUDES(mutex_);
  // A stream has broken. A caller may hold the link's lock.
  void notice() const { bell_.ring(); }

  // In a poll loop. Without memory they do less than they should, and do it the next time.
  void prepare(net::PollSet* set) noexcept TUTTI_EXCLUDES(mutex_);
  void process(const net::PollSet& set) noexcept TUTTI_EXCLUDES(mutex_);

 private:
  // The work on a broken stream.
  struct Repair {
    ReconnectingLink::Condition broken;
    std::unique_ptr<net::Dial> dial;
    net::ByteStream stream;  // on which this side has sent its position, and waits for the peer's
    std::string answer;
    bool ended_here = false;            // `stream`, because the peer, or its host, no longer has the connection
    std::int64_t next_ns = 0;           // no dial before
    std::int64_t dialled_ns = 0;        // when `dial` began
    std::int64_t unreached_ns = 0;      // since then the peer's host has not been reached
    std::int64_t refused_ns = 0;        // since then the peer only closes such connections, at once; 0: it does not
    std::string trouble = "not tried";  // of the last dial
    bool polled = false;
    std::size_t entry = 0;
  };
  struct Stream {
    std::uint64_t tried = 0;      // the number of the last attempt of this side
    std::uint64_t connected = 0;  // the number of the attempt that made the present connection
    std::unique_ptr<Repair> repair;
    bool resends = false;
  };
  struct Link {
    ReconnectingLink* link = nullptr;
    Peer peer;
    const FailureState* failure = nullptr;
    std::int64_t limit_ms = 0;
    std::vector<Stream> streams;
  };
  // An authenticated connection for a stream, until its dialler's position has come and the stream is known here.
  struct Arrival {
    net::Authenticated connection;
    std::string message;
    bool polled = false;
    std::size_t entry = 0;
  };

  void prepare_streams(net::PollSet* set) TUTTI_REQUIRES(mutex_);
  void watch(std::uint64_t id, std::size_t stream, const Link& link) const TUTTI_REQUIRES(mutex_);
  void unwatch(std::size_t stream, const Link& link) const TUTTI_REQUIRES(mutex_);
  void see_ends() TUTTI_REQUIRES(mutex_);
  void take_in(const net::PollSet& set) TUTTI_REQUIRES(mutex_);
  bool advance(Arrival* arrival) TUTTI_REQUIRES(mutex_);
  [[nodiscard]] bool accept(Arrival* arrival, std::uint64_t attempt, std::uint64_t received) TUTTI_REQUIRES(mutex_);
  void advance(std::uint64_t id, Link* link, std::size_t stream, const net::PollSet& set) TUTTI_REQUIRES(mutex_);
  void advance_dial(Link* link, std::size_t stream, const net::PollSet& set) TUTTI_REQUIRES(mutex_);
  void dialled(Link* link, std::size_t stream) TUTTI_REQUIRES(mutex_);
  static void dial_again(Repair* repair);
  static void end_attempt(Repair* repair);
  void read_answer(std::uint64_t id, Link* link, std::size_t stream) TUTTI_REQUIRES(mutex_);
  void resume(std::uint64_t id, Link* link, std::size_t stream, net::ByteStream made, std::uint64_t received)
      TUTTI_REQUIRES(mutex_);
  static void give_up(Link* link, std::size_t stream, const std::string& why);
  [[nodiscard]] std::unique_ptr<net::Dial> dial(const Link& link, std::size_t stream) const;

  const Secret secret_;
  const int rank_;
  const Encryption encryption_;
  const std::shared_ptr<Listeners> listeners_;
  EventFd bell_;  // constant after begin()
  Mutex mutex_;
  UniqueFd ends_ TUTTI_GUARDED_BY(mutex_);  // an epoll set: reports streams that end
  std::map<std::uint64_t, Link> links_ TUTTI_GUARDED_BY(mutex_);
  std::uint64_t last_id_ TUTTI_GUARDED_BY(mutex_) = 0;
  std::list<Arrival> arrivals_ TUTTI_GUARDED_BY(mutex_);
  std::optional<Listeners::Visit> visit_ TUTTI_GUARDED_BY(mutex_);  // while there are links
  bool prepared_ TUTTI_GUARDED_BY(mutex_) = false;
  bool busy_ TUTTI_GUARDED_BY(mutex_) = false;  // there may be a stream that is not whole, or that resends
  std::size_t bell_entry_ TUTTI_GUARDED_BY(mutex_) = 0;
  std::size_t ends_entry_ TUTTI_GUARDED_BY(mutex_) = 0;
};

}  // namespace tutti::internal
