// Completion queues and reliable connected queue pairs: posting, and what completions say.
//
// Threads: as the connection that has them.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/status.h"
#include "transport/verbs/device.h"
#include "transport/verbs/options.h"
#include "transport/verbs/wire.h"

namespace tutti::internal::transport::verbs {

// How much may travel within a work request, which grows with it: asked for in turn until the device agrees.
inline constexpr std::array<std::uint32_t, 4> kInlineBytes{256, 128, 64, 0};
// A retry count of 7 for a receiver that is not ready means no limit (InfiniBand specification 9.7.5.2.8).
inline constexpr std::uint8_t kReceiverNotReadyForEver = 7;

// A completion queue with the channel that wakes a sleeper.
class CompletionQueue {
 public:
  // Room for the queue pairs of one link on this device.
  static Result<std::unique_ptr<CompletionQueue>> create(Device& device, int queue_pairs);

  [[nodiscard]] ibv_cq* queue() const { return queue_.get(); }
  // Readable after arm() once something completes. Non-blocking.
  [[nodiscard]] int fd() const { return channel_->fd; }
  // Takes what has been signalled and asks for the next. What completed before is to be polled for afterwards.
  void arm();
  // Takes what has been signalled.
  void take_events();
  [[nodiscard]] Device& device() const { return device_; }

 private:
  explicit CompletionQueue(Device& device) : device_(device) {}
  Device& device_;
  Owned<ibv_comp_channel> channel_;
  Owned<ibv_cq> queue_;
};

// What a work request's id says when it completes.
struct WorkId {
  enum Kind : std::uint8_t { kPlain, kSlot, kAdvertisementLine, kReceive };
  Kind kind = kPlain;
  std::uint8_t pair = 0;     // index of the queue pair in its link
  std::uint16_t index = 0;   // of the outbox's slot or advertisement line that is free again, or of the receive
  std::uint32_t posted = 0;  // sends posted on the queue pair up to this one, modulo 2^32

  [[nodiscard]] std::uint64_t pack() const {
    return std::uint64_t{kind} << 56 | std::uint64_t{pair} << 48 | std::uint64_t{index} << 32 | posted;
  }
  static WorkId unpack(std::uint64_t id) {
    return {static_cast<Kind>(id >> 56), static_cast<std::uint8_t>(id >> 48), static_cast<std::uint16_t>(id >> 32),
            static_cast<std::uint32_t>(id)};
  }
};

// A scatter/gather element: bytes here.
struct Sge {
  const void* address = nullptr;
  std::uint32_t bytes = 0;
  std::uint32_t lkey = 0;
};

// The endpoint of one queue pair, as the peer must know it.
struct Endpoint {
  std::uint32_t qpn = 0;
  std::uint32_t psn = 0;
  std::uint16_t lid = 0;
  std::uint16_t mtu_bytes = 0;
  std::array<std::uint8_t, 16> gid{};
};

class QueuePair {
 public:
  // `index` in its link. The inbox's announcements of this index, at `received`, are where iWARP's sends arrive;
  // `outgoing` where they leave from; with lkeys of the device. Receives are posted when it is connected.
  struct Attachment {
    std::uint8_t index = 0;
    std::span<std::uint32_t, kReceives> received;
    std::uint32_t received_lkey = 0;
    std::span<std::uint32_t, kReceives> outgoing;
    std::uint32_t outgoing_lkey = 0;
  };
  QueuePair(CompletionQueue& completions, const Options& options, const Attachment& attachment)
      : completions_(&completions), options_(&options), attachment_(attachment) {}

  // -- connecting by exchange
  Status create();
  [[nodiscard]] Endpoint endpoint() const;
  Status connect(const Endpoint& peer);
  // -- connecting through librdmacm, which owns and connects `pair`: posts the receives.
  ibv_qp_init_attr attributes() const;
  Status adopt(ibv_qp* pair, std::uint32_t max_inline);
  [[nodiscard]] const Options& options() const { return *options_; }

  // -- sending. REQUIRES: room() >= 3.
  // Work requests that may still be posted.
  [[nodiscard]] std::uint32_t room() const { return depth_ - (posted_ - completed_); }
  [[nodiscard]] bool idle() const { return posted_ == completed_; }
  // Whether so many bytes travel within the work request, so that their memory is free at once.
  [[nodiscard]] bool is_inline(std::size_t bytes) const { return bytes <= max_inline_; }

  // Up to two writes, the second of which announces `word`. The last completes with `id` if that names something to
  // free, and otherwise now and then. 0 or an errno.
  struct Write {
    std::span<const Sge> sges;  // at most two; none: nothing but the announcement
    std::uint64_t address = 0;
    std::uint32_t rkey = 0;
  };
  int post(const Write* first, const Write& last, std::uint32_t word, WorkId id);
  // A request, to where the peer lets this rank write, that completes when all before it has arrived.
  int post_marker(std::uint64_t address, std::uint32_t rkey);
  void completed(const WorkId& id) { completed_ = id.posted; }

  // -- receiving
  // The word that a completed receive has brought; the receive is posted again, sooner or later.
  std::uint32_t received(const ibv_wc& completion, std::uint16_t receive);
  // 0 or an errno.
  int post_receives(bool all);

  // Everything under way ends with an error, here and for the peer, and the device touches no memory for it any more.
  void destroy();

  // Of the send queue.
  static constexpr std::uint32_t kDepth = 128;

 private:
  friend struct QueuePairFault;  // of tests
  static constexpr std::uint32_t kSignalEvery = 16;
  // As ibv_post_send.
  int post(ibv_send_wr* requests);
  Status move_to_ready(const Endpoint& peer);
  [[nodiscard]] Result<std::uint16_t> pkey_index() const;
  [[nodiscard]] Device& device() const { return completions_->device(); }
  [[nodiscard]] bool announces_by_send() const { return device().port().fabric == Fabric::kIwarp; }

  CompletionQueue* completions_;
  const Options* options_;
  Attachment attachment_;
  Owned<ibv_qp> own_;  // empty if librdmacm has it
  ibv_qp* pair_ = nullptr;
  std::uint32_t max_inline_ = 0;
  std::uint32_t depth_ = kDepth;
  std::uint32_t psn_ = 0;
  std::uint32_t posted_ = 0;
  std::uint32_t completed_ = 0;
  std::uint32_t signalled_ = 0;  // posted_ when last a completion was asked for
  std::uint32_t marked_ = 0;     // posted_ after the last marker
  std::uint32_t next_outgoing_ = 0;
  std::array<std::uint16_t, kReceives> spent_{};  // receives to be posted again
  std::uint32_t spent_count_ = 0;
};

// An error completion, in words: "rank 1: verbs: transport retry counter exceeded (status 12, vendor error 0x81) on
// rxe0 port 1", and what that hints at.
Status completion_error(const ibv_wc& completion, const Device& device, int peer);

}  // namespace tutti::internal::transport::verbs
