// One connection of the control tree, as the rank at one end of it sees it.
//
// Threads: as the SocketTree that has it.
#pragma once

#include <cstddef>
#include <deque>
#include <string>
#include <utility>

#include "base/unique_fd.h"
#include "bootstrap/control_messages.h"
#include "net/frame.h"

namespace tutti::internal {

// As its connection was made.
struct TreeNeighbour {
  int rank = -1;
  bool is_parent = false;
  std::string who;  // "rank 3 (host a, pid 77)"
  UniqueFd socket;
};

namespace control {

inline constexpr std::size_t kMaxFrameBytes = std::size_t{1} << 30;

struct Neighbour {
  explicit Neighbour(TreeNeighbour from)
      : rank(from.rank), is_parent(from.is_parent), who(std::move(from.who)), socket(std::move(from.socket)) {}
  int rank;
  bool is_parent;
  std::string who;
  UniqueFd socket;  // invalid once gone
  net::FrameReader reader{kMaxFrameBytes};
  net::FrameWriter writer;
  std::deque<Parts> inbox;  // gathers from a child, alls from the parent
  bool sent_leave_notice = false;
  bool write_armed = false;
  bool owes_receipt = false;  // of this rank's last inquiry
};

}  // namespace control
}  // namespace tutti::internal
