// The completions of the links of one communicator, and the descriptor that wakes a thread sleeping on them: a
// completion queue and a channel for each device, and one descriptor for all. A thread that polls for one link passes
// completions of other links to these. One thread at a time uses the links of a communicator, so this takes no lock.
//
// Room. A queue has room for all completions that its links can have in flight. It grows with them if the device can
// resize it; if not, a further queue on the same channel has as much room as all queues before it. A link that has
// ended leaves completions in the queue; another link can use its room when these have been taken out.
//
// Threads: as the communicator.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/status.h"
#include "os/unique_fd.h"
#include "transport/verbs/device.h"
#include "transport/verbs/wire.h"

namespace tutti::internal::transport::verbs {

// The id of a work request, which its completion returns.
struct WorkId {
  enum Kind : std::uint8_t { kPlain, kSlot, kAdvertisementLine, kReceive };
  Kind kind = kPlain;
  std::uint8_t pair = 0;     // index of the queue pair in its link
  std::uint8_t index = 0;    // of the outbox's slot or advertisement line that becomes free, or of the receive
  std::uint16_t posted = 0;  // sends posted on the queue pair up to this one, modulo 2^16
  std::uint32_t taker = 0;   // of the link, in its Completions

  [[nodiscard]] std::uint64_t pack() const {
    return std::uint64_t{kind} << 62 | std::uint64_t{pair} << 56 | std::uint64_t{index} << 48 |
           std::uint64_t{posted} << 32 | taker;
  }
  static WorkId unpack(std::uint64_t id) {
    return {static_cast<Kind>(id >> 62), static_cast<std::uint8_t>(id >> 56 & 0x3f),
            static_cast<std::uint8_t>(id >> 48), static_cast<std::uint16_t>(id >> 32), static_cast<std::uint32_t>(id)};
  }
};
static_assert(kMaxPairs <= 64 && kReceives <= 256 && kSlots <= 256 && kAdvertisementLines <= 256);

// A link, for its completions. Its functions do not poll, arm or end links.
class CompletionTaker {
 public:
  virtual ~CompletionTaker() = default;
  virtual void take(const ibv_wc& completion, const WorkId& id) = 0;
  // The link's socket is readable. Until it has been read or is no longer watched, it wakes sleeping threads.
  virtual void read_socket() = 0;
};

class Completions;

class CompletionQueue {
 public:
  [[nodiscard]] ibv_cq* queue() const { return queue_.get(); }
  [[nodiscard]] Device& device() const { return device_; }
  // The device has lost completions of this queue.
  [[nodiscard]] bool broken() const { return broken_.load(std::memory_order_relaxed); }

  // Passes completions, up to some number, to their links. kSystemError if the device cannot be polled.
  Status poll();
  // Reserves room for `entries` work requests in flight. False: there is not enough room.
  bool reserve(int entries);
  // Returns the room of a link that has ended, for which nothing more completes.
  void release(int entries) noexcept;

 private:
  friend class Completions;
  CompletionQueue(Completions& all, Device& device, std::size_t index) : all_(all), device_(device), index_(index) {}
  Status create(ibv_comp_channel* channel, int entries);
  bool grow(int needed);
  // Takes all completions, at most `most`. Returns the number taken; less than zero: the device cannot be polled.
  int take(int most);

  Completions& all_;
  Device& device_;
  const std::size_t index_;          // of the device
  std::atomic<bool> broken_{false};  // the queue's context for the device
  Owned<ibv_cq> queue_;
  int capacity_ = 0;
  int used_ = 0;
  int leaving_ = 0;     // returned room, perhaps with completions in the queue
  bool armed_ = false;  // the next completion gives an event, or an event was not taken yet
};

class Completions {
 public:
  Completions() = default;
  Completions(const Completions&) = delete;
  Completions& operator=(const Completions&) = delete;
  // No link is left.
  ~Completions() = default;

  // The name of a link in its work ids. It is reused only after remove() and 2^32 links, when no completion of the old
  // link can exist.
  std::uint32_t add(CompletionTaker& taker);
  // Its completions that are still in the queues are ignored.
  void remove(std::uint32_t taker) noexcept;

  // A queue with reserved room for `entries` work requests in flight. `index`: of the device in the RDMA context.
  // kSystemError, with the fix.
  Result<CompletionQueue*> reserve(Device& device, std::size_t index, int entries);

  // Wakes a sleeping thread when the socket is readable or the peer has closed it. kSystemError
  Status watch(int socket, std::uint32_t taker);
  void unwatch(int socket) noexcept;
  // Readable when something has completed on an armed queue, or a watched socket can be read. -1 before reserve().
  [[nodiscard]] int wait_fd() const { return epoll_.get(); }

  // Takes the signalled events of its device and requests the next event. Afterwards the caller must poll this queue
  // for earlier completions. Completions on other queues of the device are passed to their links, and quiet() reports
  // them; errors there are found when those links poll.
  void arm(CompletionQueue& queue);
  // Whether no link has received a completion since the last call. Call it after arm() and poll(): a completion that
  // another link's poll has passed on no longer wakes a thread.
  bool quiet() { return std::exchange(seen_, taken_) == taken_; }
  // Takes the signalled events, so that wait_fd() is no longer readable because of them.
  void disarm();

 private:
  friend class CompletionQueue;
  // Names: entry (20 bits: a rank has fewer peers), and how often it was taken (12).
  static constexpr std::uint32_t kPlaceMask = 0xfffff;
  struct Taker {
    CompletionTaker* taker = nullptr;
    std::uint32_t name = 0;
  };
  struct EventChannel {
    Device* device = nullptr;
    Owned<ibv_comp_channel> channel;
    std::vector<std::unique_ptr<CompletionQueue>> queues;
  };

  void reuse_names();
  void hand_over(const ibv_wc& completion);
  Status open(Device& device, std::size_t index);
  Status add_to_set(int fd, std::uint32_t events, std::uint64_t data);
  static void take_events(const EventChannel& channel);

  UniqueFd epoll_;
  std::array<EventChannel, kMaxRails> channels_;  // by index of the device
  std::vector<Taker> takers_;
  std::vector<std::uint32_t> free_;  // places
  std::uint64_t taken_ = 0;          // completions
  std::uint64_t seen_ = 0;
};

}  // namespace tutti::internal::transport::verbs
