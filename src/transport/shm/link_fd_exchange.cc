// How two processes come to share a segment: each sends its wakeup fd over the Unix socket, and the side that
// dialled also the memory.
#include <fmt/core.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <string>
#include <utility>

#include "net/connect_wait.h"
#include "transport/shm/fd_message.h"
#include "transport/shm/link.h"

namespace tutti::internal::transport::shm {
namespace {

// First message in each direction: says what the one descriptor is that comes with it.
struct FdHeader {
  std::uint32_t magic;
  std::uint32_t what;  // kSegmentFd or kWakeupFd
  Turns turns;         // on which the layout of the segment depends
};
constexpr std::uint32_t kMagic = 0x74736d35;  // "tsm5"
constexpr std::uint32_t kSegmentFd = 1;
constexpr std::uint32_t kWakeupFd = 2;

const char* name_of(Turns turns) {
  return turns == Turns::kNone ? "processors of their own" : "turns on processors";
}

Status check_turns(const FdHeader& peers, const LinkOptions& options) {
  if (peers.turns == turns_of(options)) return {};
  return Status::remote(fmt::format("the two sides do not agree on how ranks share processors: {} there, {} here",
                                    name_of(peers.turns), name_of(turns_of(options))));
}

// A peer that refuses what it has read closes, and may have done so before all was sent to it. Why it refused, its
// own first message says, which it had sent before.
Status why_closed(int socket, const LinkOptions& options) {
  FdHeader g{};
  if (recv(socket, &g, sizeof g, MSG_PEEK | MSG_DONTWAIT) == static_cast<ssize_t>(sizeof g) && g.magic == kMagic) {
    if (Status s = check_turns(g, options); !s.is_ok()) return s;
  }
  return Status::remote("sending a descriptor to the peer failed: its Unix socket is closed or full");
}

Status send_fd(int socket, std::uint32_t what, int fd, const LinkOptions& options) {
  const FdHeader g{kMagic, what, turns_of(options)};
  return send_with_fd(socket, &g, sizeof g, fd) ? Status() : why_closed(socket, options);
}

Result<UniqueFd> receive_fd(int socket, std::uint32_t what, const LinkOptions& options, Deadline deadline) {
  // The peer may have stopped between its messages, and for how long nobody knows.
  const net::ConnectWait wait(options.failure, deadline);
  for (;;) {
    FdHeader g{};
    UniqueFd fd;
    const ssize_t n = receive_with_fd(socket, &g, sizeof g, &fd);
    if (n == static_cast<ssize_t>(sizeof g) && g.magic == kMagic && g.what == what && fd.valid()) {
      if (Status s = check_turns(g, options); !s.is_ok()) return s;
      return fd;
    }
    if (n >= 0) return Status::remote("the peer closed the Unix socket, or sent an unexpected message over it");
    if (errno != EAGAIN && errno != EWOULDBLOCK) return Status::system("receiving shared memory", errno);
    Status s = wait.poll(socket, POLLIN, options.peer, "waiting for the peer's shared memory");
    if (!s.is_ok()) return s;
  }
}

}  // namespace

Result<std::unique_ptr<Link>> make_link(UniqueFd socket, bool dialled, bool same_process, const LinkOptions& options,
                                        Deadline deadline) {
  const std::string context = fmt::format("shared memory with rank {}", options.peer);
  if (Status s = send_fd(socket.get(), kWakeupFd, options.wakeup_fd->fd(), options); !s.is_ok()) {
    return s.with_context(context);
  }
  std::shared_ptr<Segment> segment;
  if (dialled) {
    UniqueFd memory_fd;
    auto created = Segment::create_shared(&memory_fd, turns_of(options));
    if (!created.is_ok()) return created.status().with_context(context);
    segment = std::move(*created);
    if (Status s = send_fd(socket.get(), kSegmentFd, memory_fd.get(), options); !s.is_ok()) {
      return s.with_context(context);
    }
  }
  auto wakeup_fd = receive_fd(socket.get(), kWakeupFd, options, deadline);
  if (!wakeup_fd.is_ok()) return wakeup_fd.status().with_context(context);
  if (!dialled) {
    auto memory_fd = receive_fd(socket.get(), kSegmentFd, options, deadline);
    if (!memory_fd.is_ok()) return memory_fd.status().with_context(context);
    auto mapped = Segment::map(*memory_fd, turns_of(options));
    if (!mapped.is_ok()) return mapped.status().with_context(context);
    segment = std::move(*mapped);
  }
  return make_shared_link(std::move(segment), dialled ? 0 : 1, std::move(*wakeup_fd), std::move(socket), same_process,
                          options);
}

}  // namespace tutti::internal::transport::shm
