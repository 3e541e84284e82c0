// The shared state of the two ends of a simulated link.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "os/unique_fd.h"
#include "sim/network.h"
#include "sim/pacer.h"
#include "transport/transport.h"

namespace tutti::internal::transport::sim {

// One rank's state, which all of its wires read.
struct RankState {
  std::atomic<bool> killed = false;
  std::atomic<bool> stalled = false;
};

// Consecutive bytes of one operation: a copy, or memory of the sender.
struct Message {
  Fingerprint fingerprint;
  std::vector<std::byte> copy;
  const std::byte* zcopy = nullptr;
  std::size_t size = 0;
  std::size_t used = 0;
  [[nodiscard]] const std::byte* data() const { return (zcopy != nullptr ? zcopy : copy.data()) + used; }
  [[nodiscard]] std::size_t left() const { return size - used; }
};

// One direction.
struct Pipe {
  Pipe(std::uint64_t seed, bool benign) : send_pace(seed, benign), recv_pace(~seed, benign) {}
  std::deque<Message> messages;  // the sender only appends, so a view does not move
  std::uint64_t taken = 0;
  std::uint64_t consumed = 0;
  Pacer send_pace;
  Pacer recv_pace;
};

// One end, as the other end sees it. Guarded by Wire::mutex, except `wakeup_fd`, which never changes.
struct End {
  int rank = -1;
  std::shared_ptr<RankState> fate;
  UniqueFd wakeup_fd;     // eventfd
  bool armed = false;     // ring `wakeup_fd` on the next action of the other side
  bool activity = false;  // something has happened since the last arm()
  bool closed = false;
};

// End i sends into pipes[i].
struct Wire {
  Wire(std::uint64_t seed0, std::uint64_t seed1, bool benign) : pipes{Pipe(seed0, benign), Pipe(seed1, benign)} {}

  std::mutex mutex;
  std::array<End, 2> ends;
  std::array<Pipe, 2> pipes;

  // REQUIRES: mutex is held. Tells end `side` that something has changed.
  void notify(std::size_t side);
  // REQUIRES: mutex is held. The failure that end `side` sees from killed ranks.
  [[nodiscard]] Status killed(std::size_t side) const;
  [[nodiscard]] bool stuck() const;
};

std::unique_ptr<Link> make_end(std::shared_ptr<Wire> wire, std::size_t side, const Options& options, bool send_slots,
                               bool recv_slots);

}  // namespace tutti::internal::transport::sim
