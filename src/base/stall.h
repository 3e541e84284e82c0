// What a wait of an operation tells while nothing moves, and asks when its time is over. Implemented by who knows
// the other ranks (communicator/stalls.h).
#pragma once

#include <cstdint>
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
  // Which ranks a wait waits for.
  class Awaited {
   public:
    Awaited() = default;
    Awaited(const Awaited&) = delete;
    Awaited& operator=(const Awaited&) = delete;
    virtual ~Awaited() = default;
    [[nodiscard]] virtual std::vector<int> awaited() const = 0;
  };
  // Every 50 ms or more often while a wait sleeps: how long nothing has moved, and how long until the wait gives up.
  // Does not wait. `awaited` is asked if a notice is due; null: not known. An error: what is waited for will not come.
  [[nodiscard]] virtual Status stalled(std::int64_t waited_ms, std::int64_t left_ms, const Awaited* awaited) = 0;
  // When the wait gives up: which ranks have not arrived, and how that is known ("rank 5 (host b, pid 77) has not
  // called operation 17 (its last was 16)"). Empty if none is known. Waits a little: at most kAnswerMs.
  virtual std::string missing() = 0;

  static constexpr std::int64_t kAnswerMs = 1500;
};

}  // namespace tutti::internal
