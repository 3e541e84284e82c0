// Reliable connected queue pairs: posting, and interpreting completions.
//
// Threads: as the connection that has them.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/status.h"
#include "transport/verbs/completions.h"
#include "transport/verbs/device.h"
#include "transport/verbs/options.h"
#include "transport/verbs/wire.h"

namespace tutti::internal::transport::verbs {

// Sizes of inline data, which make the work request longer: requested in this order until the device accepts one.
inline constexpr std::array<std::uint32_t, 4> kInlineBytes{256, 128, 64, 0};
// A retry count of 7 for a receiver that is not ready means no limit (InfiniBand specification 9.7.5.2.8).
inline constexpr std::uint8_t kReceiverNotReadyForEver = 7;

// A scatter/gather element of local memory.
struct Sge {
  const void* address = nullptr;
  std::uint32_t bytes = 0;
  std::uint32_t lkey = 0;
};

// The endpoint of one queue pair, for the peer.
struct Endpoint {
  std::uint32_t qpn = 0;
  std::uint32_t psn = 0;
  std::uint16_t lid = 0;
  std::uint16_t mtu_bytes = 0;
  std::array<std::uint8_t, 16> gid{};
};

class QueuePair {
 public:
  // `taker`: of its link. `index`: of the queue pair in the link. iWARP's sends arrive in the inbox's announcements of
  // this index, at `received`, and leave from `outgoing`; with lkeys of the device. Receives are posted when it is
  // connected.
  struct Attachment {
    std::uint32_t taker = 0;
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
  // Whether `bytes` fit into the work request, so that their memory is free at once.
  [[nodiscard]] bool is_inline(std::size_t bytes) const { return bytes <= max_inline_; }

  // Up to two writes, the second of which announces `word`. The last one completes with `id` if that names something to
  // free, and otherwise only sometimes. 0 or an errno.
  struct Write {
    std::span<const Sge> sges;  // at most two; none: nothing but the announcement
    std::uint64_t address = 0;
    std::uint32_t rkey = 0;
  };
  int post(const Write* first, const Write& last, std::uint32_t word, WorkId id);
  // A request to memory of the peer that this rank may access; it completes when everything before it has arrived.
  int post_marker(std::uint64_t address, std::uint32_t rkey);
  void completed(const WorkId& id) {
    completed_ += static_cast<std::uint16_t>(id.posted - static_cast<std::uint16_t>(completed_));
  }

  // -- receiving The word of a completed receive; the receive is posted again later.
  std::uint32_t received(const ibv_wc& completion, std::uint16_t receive);
  // 0 or an errno.
  int post_receives(bool all);

  // Everything in flight ends with an error, here and at the peer, and the device no longer accesses memory for it.
  void destroy();

  // Of the send queue.
  static constexpr std::uint32_t kDepth = 128;
  // Of a completion queue: a send completes at most once per work request, a receive once.
  static constexpr int kCompletions = static_cast<int>(kDepth + kReceives);

 private:
  friend struct QueuePairFault;  // of tests
  static constexpr std::uint32_t kSignalEvery = 16;
  // As ibv_post_send.
  int post(ibv_send_wr* requests);
  [[nodiscard]] WorkId work_id(WorkId::Kind kind, std::uint16_t index) const {
    return {kind, attachment_.index, static_cast<std::uint8_t>(index), static_cast<std::uint16_t>(posted_),
            attachment_.taker};
  }
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
// rxe0 port 1", with a hint at the cause.
Status completion_error(const ibv_wc& completion, const Device& device, int peer);

}  // namespace tutti::internal::transport::verbs
