// One connection of the control tree, as the rank at one end of it sees it.
//
// Threads: as the Neighbours that have it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <utility>

#include "net/frame.h"
#include "net/socket.h"
#include "os/unique_fd.h"

namespace tutti::internal {

// As its connection was made.
struct TreeNeighbour {
  // More than the largest frame, the descriptions of all ranks, ever has; a longer length is a protocol error.
  static constexpr std::size_t kMaxFrameBytes = std::size_t{1} << 30;
  int rank = -1;
  bool is_parent = false;
  std::string host;
  std::int32_t pid = 0;
  UniqueFd socket;
  // What it has said before there was a tree to hear it.
  net::FrameReader reader{kMaxFrameBytes};
  std::deque<std::string> heard{};
  std::size_t heard_bytes = 0;
};

namespace control {

struct Neighbour {
  explicit Neighbour(TreeNeighbour from)
      : rank(from.rank),
        is_parent(from.is_parent),
        host(std::move(from.host)),
        pid(from.pid),
        socket(std::move(from.socket)),
        reader(std::move(from.reader)),
        heard(std::move(from.heard)) {}
  // What is still on its way must not keep the closed socket in the kernel for days.
  void close() {
    if (socket.valid()) net::limit_lost_bytes(socket.get());
    socket.reset();
  }
  // It can be told something.
  [[nodiscard]] bool hears() const { return socket.valid() && !parting; }
  int rank;
  bool is_parent;
  std::string host;
  std::int32_t pid;
  UniqueFd socket;  // invalid once gone
  net::FrameReader reader;
  std::deque<std::string> heard;  // before the thread began
  net::FrameWriter writer;
  bool said_bye = false;
  bool parting = false;   // it leaves: nothing more is said to it, but what it passes on is still heard
  bool shut = false;      // this side of the connection
  bool confirmed = true;  // of a rank that looks for a parent: it has taken this one
  bool ended = false;     // nothing more can be read; what that means is not judged yet
  bool polled = false;
  std::size_t entry = 0;
};

}  // namespace control
}  // namespace tutti::internal
