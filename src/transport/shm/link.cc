#include "transport/shm/link.h"

#include <span>
#include <utility>

#include "os/clock.h"
#include "transport/plain.h"
#include "transport/shm/link_state.h"
#include "transport/shm/recv.h"
#include "transport/shm/send.h"

namespace tutti::internal::transport::shm {
namespace {

// How long a rank whose operation has failed waits for a process that is inside an access, that is, may touch its
// memory. Accesses are short; only a stopped process takes longer.
constexpr std::int64_t kRevokeTimeoutMs = 1000;

class ShmLink final : public PlainLink {
 public:
  // `pair`: null between threads.
  ShmLink(std::unique_ptr<LinkMemory> memory, Pair* pair, int peer_wakeup_fd, bool same_process,
          const LinkOptions& options)
      : memory_(std::move(memory)),
        state_(make_state(memory_.get(), pair, peer_wakeup_fd, same_process, options)),
        send_(&state_),
        recv_(&state_) {
    if (state_.cross_memory != nullptr) {
      state_.pair->offer_cross_memory(options.reads == MemoryReads::kAlways);
    }
  }

  ~ShmLink() override { state_.end_accesses(); }

  SendLane& send() override { return send_; }
  RecvLane& recv() override { return recv_; }

  // A rank that sleeps uses no view and no reservation.
  bool arm() override {
    state_.end_accesses();
    state_.own->sleeping.value.store(1, std::memory_order_seq_cst);
    const bool sent = send_.activity();
    const bool received = recv_.activity();
    return !sent && !received;
  }
  void disarm() override { state_.own->sleeping.value.store(0, std::memory_order_relaxed); }
  [[nodiscard]] std::span<const int> wait_fds() const override { return {}; }

  void begin_operation(MemoryUse use) override {
    if (state_.pair != nullptr) {
      state_.pair->tidy();
      state_.regions.tidy();
      state_.put_regions.tidy();
    }
    if (state_.cross_memory != nullptr) state_.pair->probe_cross_memory();
    send_.begin_operation(use);
    recv_.begin_operation(use);
  }
  void revoke() noexcept override {
    state_.lose();
    state_.end_accesses();
    state_.own->end.revoked.store(1, std::memory_order_seq_cst);
    // Orders this before the caller's later writes to the memory: see LinkState::end_access().
    std::atomic_thread_fence(std::memory_order_seq_cst);
    EventFd::ring(state_.lines.peer_wakeup_fd);
    revoke_deadline_ = Deadline::after_ms(kRevokeTimeoutMs);
  }
  [[nodiscard]] bool revoked() noexcept override {
    if (state_.theirs->in_access.value.load(std::memory_order_seq_cst) == 0) return true;
    // A thread of this process ends its access in any case, even if the pair's socket has been shut down.
    if (state_.same_process) return false;
    return (state_.pair != nullptr && EndWatch::hung_up(state_.pair->socket())) || revoke_deadline_.passed();
  }

 private:
  static LinkState make_state(LinkMemory* memory, Pair* pair, int peer_wakeup_fd, bool same_process,
                              const LinkOptions& options) {
    LinkState s;
    s.memory = memory;
    s.own = &memory->own();
    s.theirs = &memory->theirs();
    s.peer = options.peer;
    s.lines = eager_lines(*memory, peer_wakeup_fd);
    s.same_process = same_process;
    s.far = options.far;
    s.slots_ahead = options.slots_ahead;
    s.pair = pair;
    s.regions = s.put_regions = LinkRegions(pair);
    if (pair == nullptr) return s;
    s.peer_end = EndWatch(pair->socket());
    s.always_reads = options.reads == MemoryReads::kAlways;
    if (!same_process && options.reads != MemoryReads::kNever) s.cross_memory = &pair->cross_memory();
    return s;
  }

  const std::unique_ptr<LinkMemory> memory_;
  LinkState state_;
  ShmSendLane send_;
  ShmRecvLane recv_;
  Deadline revoke_deadline_ = Deadline::after_ms(0);  // of revoked()
};

}  // namespace

std::unique_ptr<Link> make_link(std::unique_ptr<PairLinkMemory> memory, bool same_process, const LinkOptions& options) {
  Pair* const pair = memory->pair().get();
  const int peer_wakeup_fd = pair->peer_wakeup_fd();
  return std::make_unique<ShmLink>(std::move(memory), pair, peer_wakeup_fd, same_process, options);
}

std::unique_ptr<Link> make_private_link(std::unique_ptr<LinkMemory> memory, int peer_wakeup_fd,
                                        const LinkOptions& options) {
  return std::make_unique<ShmLink>(std::move(memory), nullptr, peer_wakeup_fd, true, options);
}

}  // namespace tutti::internal::transport::shm
