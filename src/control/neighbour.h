// One connection of the control tree, as the rank at one end sees it.
//
// Threads: the same as the Neighbours that own it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <utility>

#include "net/byte_stream.h"
#include "net/frame.h"
#include "net/socket.h"

namespace tutti::internal {

// A neighbour as its connection was made.
struct TreeNeighbour {
  // More than the largest frame, the descriptions of all ranks, ever has; a longer length is a protocol error.
  static constexpr std::size_t kMaxFrameBytes = std::size_t{1} << 30;
  int rank = -1;
  bool is_parent = false;
  std::string host;
  std::int32_t pid = 0;
  net::ByteStream stream;
  // Contains what the neighbour sent before the tree existed.
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
        stream(std::move(from.stream)),
        reader(std::move(from.reader)),
        heard(std::move(from.heard)) {}
  // Unsent data must not keep the closed socket in the kernel for days.
  void close() {
    if (stream.valid()) net::limit_lost_bytes(stream.get());
    stream.reset();
  }
  // Whether messages can be sent to it.
  [[nodiscard]] bool hears() const { return stream.valid() && !parting; }
  int rank;
  bool is_parent;
  std::string host;
  std::int32_t pid;
  net::ByteStream stream;  // invalid once gone
  net::FrameReader reader;
  std::deque<std::string> heard;  // received before the thread began
  net::FrameWriter writer;
  bool said_bye = false;
  enum class Receipt : std::uint8_t { kNone, kOwed, kSent };
  Receipt receipt = Receipt::kNone;  // this rank's answer to the neighbour's bye
  bool knows_bye = false;            // the neighbour has answered this rank's bye
  bool parting = false;   // it leaves: nothing more is sent to it, but the messages that it forwards are still handled
  bool shut = false;      // this rank has ended its side of the connection
  bool confirmed = true;  // for a rank that looked for a parent: it has chosen this one
  bool ended = false;     // nothing more can be read; the reason is not judged yet
  bool silent = false;    // because its host acknowledges nothing
  bool polled = false;
  std::size_t entry = 0;
};

}  // namespace control
}  // namespace tutti::internal
