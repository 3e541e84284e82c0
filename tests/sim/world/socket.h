// The object behind a simulated descriptor: see world.h.
#pragma once

#include <sys/epoll.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace tutti::internal::sim {

struct Process;
struct Thread;

// A thread to be woken, if it is still in the same wait.
struct Waiter {
  Thread* thread = nullptr;
  std::uint64_t epoch = 0;
};

struct Socket {
  enum class Kind : std::uint8_t { kEvent, kSet, kFresh, kListener, kStream };
  Kind kind = Kind::kFresh;
  int fd = -1;
  Process* owner = nullptr;
  bool closed = false;
  std::vector<Waiter> waiters;         // in poll()
  std::uint64_t count = 0;             // of an event
  std::map<int, epoll_event> watched;  // of an epoll set

  std::uint32_t host = 0;  // its own address,
  std::uint16_t port = 0;
  std::uint32_t peer_host = 0;  // and the other one's
  std::uint16_t peer_port = 0;
  std::vector<Socket*> backlog;  // of a listener

  // Of a stream.
  Socket* peer = nullptr;
  bool connected = false;
  bool shut = false;   // it sends nothing more
  bool ended = false;  // the peer does not send any more
  bool reset = false;  // by the peer
  bool wants_room = false;
  int error = 0;                 // SO_ERROR
  std::string in;                // has arrived,
  std::size_t in_at = 0;         // and has been read up to here
  std::size_t flying = 0;        // bytes in flight to the peer
  std::int64_t arrival_ns = 0;   // of the last packet to the peer
  std::uint64_t generation = 0;  // packets of an earlier generation are lost
  [[nodiscard]] std::size_t unread() const { return in.size() - in_at; }
};

}  // namespace tutti::internal::sim
