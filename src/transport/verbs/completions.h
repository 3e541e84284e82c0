// What completes for the links of one communicator, and what wakes a thread that sleeps on them: a completion queue and
// a channel per device, and one descriptor for all. Whoever polls for one link hands to the others what is theirs; all
// links of a communicator are in one thread at a time, so this takes no lock.
//
// Room. A queue has room for all that its links can have under way. It grows with them where the device can resize it;
// where not, a further queue on the same channel has as much room as all before it. A link that has ended leaves
// completions behind, which are of no one: its room is another's when they have been taken out.
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

// What a work request's id says when it completes.
struct WorkId {
  enum Kind : std::uint8_t { kPlain, kSlot, kAdvertisementLine, kReceive };
  Kind kind = kPlain;
  std::uint8_t pair = 0;     // index of the queue pair in its link
  std::uint8_t index = 0;    // of the outbox's slot or advertisement line that is free again, or of the receive
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

// A link, for what completes. Neither polls, arms nor ends a link.
class CompletionTaker {
 public:
  virtual ~CompletionTaker() = default;
  virtual void take(const ibv_wc& completion, const WorkId& id) = 0;
  // Its socket can be read: until it has been, or is watched no more, it wakes whoever sleeps.
  virtual void read_socket() = 0;
};

class Completions;

class CompletionQueue {
 public:
  [[nodiscard]] ibv_cq* queue() const { return queue_.get(); }
  [[nodiscard]] Device& device() const { return device_; }
  // The device has lost completions of it.
  [[nodiscard]] bool broken() const { return broken_.load(std::memory_order_relaxed); }

  // Hands what has completed, up to some number, to the links that it is of. kSystemError if the device cannot tell.
  Status poll();
  // For so many work requests under way. False: there is none.
  bool reserve(int entries);
  // Gives room back: nothing more completes for it, whoever had it being gone.
  void release(int entries) noexcept;

 private:
  friend class Completions;
  CompletionQueue(Completions& all, Device& device, std::size_t index) : all_(all), device_(device), index_(index) {}
  Status create(ibv_comp_channel* channel, int entries);
  bool grow(int needed);
  // Until there is nothing more, at most `most`. The number taken, less than zero: the device cannot tell.
  int take(int most);

  Completions& all_;
  Device& device_;
  const std::size_t index_;          // of the device
  std::atomic<bool> broken_{false};  // the queue's context for the device
  Owned<ibv_cq> queue_;
  int capacity_ = 0;
  int used_ = 0;
  int leaving_ = 0;     // given back, perhaps with completions in the queue
  bool armed_ = false;  // an event comes with the next completion, or has come and was not taken
};

class Completions {
 public:
  Completions() = default;
  Completions(const Completions&) = delete;
  Completions& operator=(const Completions&) = delete;
  // No link is left.
  ~Completions() = default;

  // The name of a link in its work ids. It is given again only after remove() and 2^32 links, when no completion of the
  // old link can be left.
  std::uint32_t add(CompletionTaker& taker);
  // What is still in the queues of it is no one's.
  void remove(std::uint32_t taker) noexcept;

  // A queue with room for so many work requests under way, reserved. `index` of the device in the RDMA context.
  // kSystemError, with the remedy.
  Result<CompletionQueue*> reserve(Device& device, std::size_t index, int entries);

  // Wakes a sleeper when it can be read, or the peer has closed it. kSystemError
  Status watch(int socket, std::uint32_t taker);
  void unwatch(int socket) noexcept;
  // Readable when something has completed on an armed queue, or a watched socket can be read. -1 before reserve().
  [[nodiscard]] int wait_fd() const { return epoll_.get(); }

  // Takes what has been signalled on its device and asks for the next. What completed on this queue before is to be
  // polled for afterwards; what completed on others of the device is handed over, so that quiet() tells of it. An error
  // of these their own links' polls find.
  void arm(CompletionQueue& queue);
  // Whether no link has been handed anything since the last call. To be asked after arm() and poll(): what another
  // link's poll has handed over wakes nobody any more.
  bool quiet() { return std::exchange(seen_, taken_) == taken_; }
  // Takes what has been signalled: wait_fd() is no longer readable because of it.
  void disarm();

 private:
  friend class CompletionQueue;
  // Names: place (20 bits: a rank has fewer peers), and how often it was taken (12).
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
