// The interface through which a waiting operation reports that nothing moves, and asks which ranks are missing.
// Implemented by communicator/stalls.h.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"

namespace tutti::internal {

class StallWatch {
 public:
  StallWatch() = default;
  StallWatch(const StallWatch&) = delete;
  StallWatch& operator=(const StallWatch&) = delete;
  virtual ~StallWatch() = default;
  // The ranks for which an operation waits.
  class Awaited {
   public:
    Awaited() = default;
    Awaited(const Awaited&) = delete;
    Awaited& operator=(const Awaited&) = delete;
    virtual ~Awaited() = default;
    [[nodiscard]] virtual std::vector<int> awaited() const = 0;
  };
  // Called at least every 50 ms while an operation waits: the time without progress, and the time until it gives up.
  // Does not block. Calls `awaited` now and then; null: unknown. Returns an error if the awaited data will not
  // arrive.
  [[nodiscard]] virtual Status stalled(std::int64_t waited_ms, std::int64_t left_ms, const Awaited* awaited) = 0;
  // A link with descriptors that holds up an operation: it waits for bytes of the peer, or (`sends`) the network has
  // not taken all bytes to the peer.
  struct Held {
    int peer = -1;
    bool sends = false;
  };
  // Called every few milliseconds while an operation waits for such links: for this time. Does not block.
  virtual void held_up(std::span<const Held> links, std::int64_t ns) = 0;
  // When the operation gives up: the missing ranks, with the evidence ("rank 5 (host b, pid 77) has not called
  // operation 17 (its last was 16)"). Empty if none is known. Blocks at most kAnswerMs.
  virtual std::string missing() = 0;

  static constexpr std::int64_t kAnswerMs = 1500;
};

}  // namespace tutti::internal
