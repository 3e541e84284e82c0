// The listening sockets of one rank of a job: one set for all communicators of a family.
//
// A thread that waits for connections accepts for all communicators. One thread at a time watches the sockets. It puts
// each authenticated connection into the mailbox of the communicator that the connection claims. The other threads are
// woken when a connection for them arrives, or when that thread leaves. If no thread waits for connections, the control
// tree's thread attends the sockets from time to time, so that peers without the secret do not stay in their queues.
//
// Threads: open(), limit_queues() and what has to do with paths by the thread that joins, before all else; opened(),
// subscribe(), take(), unsubscribe() and attend() any; a Visit belongs to one thread.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/config.h"
#include "base/descriptors.h"
#include "base/event_fd.h"
#include "join/peer_info.h"
#include "join/unique_id.h"
#include "net/acceptor.h"
#include "net/address.h"
#include "os/mutex.h"
#include "os/unique_fd.h"

namespace tutti::internal {

class Listeners {
 public:
  // `rank`: in the communicator that joined.
  Listeners(const Secret& secret, int rank, Encryption encryption);
  Listeners(const Listeners&) = delete;
  Listeners& operator=(const Listeners&) = delete;
  ~Listeners();

  // Fills the address fields of *info. `best`: the address that comes first of those of TCP, as Job::address.
  Status open(const Settings& settings, bool allow_unix, bool allow_tcp, const std::string& best, PeerInfo* info);
  // For a job of `ranks`: the kernel keeps no more connections than they need.
  void limit_queues(std::size_t ranks);
  // Also by a path, in the folder TMPDIR or in /tmp. Fills info->unix_path.
  Status listen_on_path(PeerInfo* info);
  // Opens the paths of peers, so that they can be dialled after the files are removed. A path that cannot be opened
  // (another container, another user) is out of reach.
  void open_paths(const std::vector<std::string>& paths);
  // Where to dial the peer that listens there; nothing: out of reach.
  [[nodiscard]] std::optional<net::Address> opened(const std::string& path) const;
  // Removes the file of listen_on_path() after the peers have opened it, so that a killed process leaves no file.
  void remove_path();

  // The communicator number that shared connections claim (Connector::connect_shared), for dialling rank `dialler` in
  // the communicator that joined. No communicator has such a number. Shared connections are always kept.
  static std::uint64_t shared_by(int dialler) {
    return static_cast<std::uint64_t>(dialler) << kCountBits | ((std::uint64_t{1} << kCountBits) - 1);
  }
  static constexpr int kCountBits = 44;  // of a communicator's number: see Family::next_id()

  // From now on connections for the communicator are kept, at most `most` at a time: then the oldest is closed.
  // Connections for other communicators are closed.
  void subscribe(std::uint64_t communicator, std::size_t most) TUTTI_EXCLUDES(mutex_);
  void unsubscribe(std::uint64_t communicator) TUTTI_EXCLUDES(mutex_);
  // The connections that arrived for it since the last call.
  std::vector<net::Authenticated> take(std::uint64_t communicator) TUTTI_EXCLUDES(mutex_);

  // From now on connections for streams of links (Purpose::kStream) are kept if their communicator has a mailbox, and
  // ring `bell`. It also rings when a thread that attends the sockets leaves.
  void subscribe_streams(int bell) TUTTI_EXCLUDES(mutex_);
  // Those that arrived since the last call.
  std::vector<net::Authenticated> take_streams() TUTTI_EXCLUDES(mutex_);

  // One round, without waiting: accepts, authenticates, closes. True: connections are not authenticated yet, so the
  // next round should follow soon. Does nothing if a thread attends the sockets already.
  bool attend() TUTTI_EXCLUDES(mutex_);

  // While it exists, a thread waits for connections of these communicators, which have mailboxes. In a poll loop, after
  // take(): prepare(set), set.wait(), process(set).
  class Visit {
   public:
    Visit(Listeners& listeners, std::vector<std::uint64_t> communicators)
        : listeners_(listeners), communicators_(std::move(communicators)) {}
    Visit(const Visit&) = delete;
    Visit& operator=(const Visit&) = delete;
    ~Visit();
    void prepare(net::PollSet* set);
    void process(const net::PollSet& set);
    // Acceptor::shortage(), where this thread has met it.
    [[nodiscard]] const Status& shortage() const { return shortage_; }
    // This thread has accepted connections that are not authenticated yet.
    [[nodiscard]] bool has_pending() const { return attends_ && listeners_.acceptor_.has_pending(); }

   private:
    Listeners& listeners_;
    const std::vector<std::uint64_t> communicators_;
    bool attends_ = false;  // this thread looks at the sockets, until it leaves
    EventFd bell_;          // else what wakes it
    std::size_t entry_ = 0;
    bool polled_ = false;
    Status shortage_;
  };

 private:
  struct Mailbox {
    std::size_t most = 0;
    std::vector<net::Authenticated> kept;  // the oldest first. An empty deque would take half a KiB
    int bell = -1;                         // of the thread that waits, if another looks at the sockets
  };
  Mailbox& mailbox(std::uint64_t communicator) TUTTI_REQUIRES(mutex_);
  Status open_unix(PeerInfo* info);
  Status open_tcp(const Settings& settings, const std::string& best, PeerInfo* info);
  void deliver(std::vector<net::Authenticated> connections) TUTTI_EXCLUDES(mutex_);

  const pid_t owner_;
  std::string path_;                        // of a file that is there
  std::map<std::string, UniqueFd> opened_;  // by path
  DescriptorReservation descriptors_;       // of those
  net::Acceptor acceptor_;                  // of the thread that attends
  Mutex mutex_;
  bool attended_ TUTTI_GUARDED_BY(mutex_) = false;
  std::map<std::uint64_t, Mailbox> mailboxes_ TUTTI_GUARDED_BY(mutex_);
  Mailbox streams_ TUTTI_GUARDED_BY(mutex_);
};

}  // namespace tutti::internal
