#include "transport/shm/link.h"

#include <utility>

#include "base/clock.h"
#include "transport/plain.h"
#include "transport/shm/link_state.h"
#include "transport/shm/peer_regions.h"
#include "transport/shm/recv.h"
#include "transport/shm/send.h"

namespace tutti::internal::transport::shm {
namespace {

// How long a rank whose operation has failed waits for a process that is inside an epoch, that is, may touch its
// memory. Epochs are short; only a process that has been stopped takes longer.
constexpr std::int64_t kPatienceMs = 1000;

class ShmLink final : public PlainLink {
 public:
  ShmLink(std::shared_ptr<Segment> segment, int side, UniqueFd peer_wakeup_fd, int borrowed_wakeup_fd,
          bool same_process, std::unique_ptr<PeerRegions> regions, const LinkOptions& options)
      : regions_(std::move(regions)),
        owned_wakeup_fd_(std::move(peer_wakeup_fd)),
        cross_memory_(same_process || !options.own_processor || !options.reads
                          ? nullptr
                          : std::make_unique<CrossMemory>(&segment->memory(), side, regions_->socket(), options.peer)),
        state_(make_state(std::move(segment), side,
                          owned_wakeup_fd_.valid() ? owned_wakeup_fd_.get() : borrowed_wakeup_fd, same_process,
                          regions_.get(), options)),
        send_(&state_),
        recv_(&state_) {
    state_.cross_memory = cross_memory_.get();
  }

  ~ShmLink() override { state_.end_epochs(); }

  SendLane& send() override { return send_; }
  RecvLane& recv() override { return recv_; }

  // A rank that sleeps uses no view and no reservation.
  bool arm() override {
    state_.end_epochs();
    state_.memory->sleeping[state_.side].value.store(1, std::memory_order_seq_cst);
    const bool sent = send_.activity();
    const bool received = recv_.activity();
    return !sent && !received;
  }
  void disarm() override { state_.memory->sleeping[state_.side].value.store(0, std::memory_order_relaxed); }
  [[nodiscard]] int wait_fd() const override { return -1; }

  void begin_operation(bool exchanges) override {
    if (regions_ != nullptr) regions_->tidy();
    if (cross_memory_ != nullptr) cross_memory_->probe();
    send_.begin_operation(exchanges);
    recv_.begin_operation(exchanges);
  }
  void revoke() noexcept override {
    state_.lose();
    state_.end_epochs();
    state_.memory->revoked[state_.side].value.store(1, std::memory_order_seq_cst);
    // Before what the caller then writes to the memory: see LinkState::end_epoch().
    std::atomic_thread_fence(std::memory_order_seq_cst);
    ring(state_.peer_wakeup_fd);
    patience_ = Deadline::after_ms(kPatienceMs);
  }
  [[nodiscard]] bool revoked() noexcept override {
    if (state_.memory->in_epoch[1 - state_.side].value.load(std::memory_order_seq_cst) == 0) return true;
    if (regions_ != nullptr && EndWatch::hung_up(regions_->socket())) return true;
    return !state_.same_process && patience_.passed();
  }

 private:
  static LinkState make_state(std::shared_ptr<Segment> segment, int side, int wakeup_fd, bool same_process,
                              PeerRegions* regions, const LinkOptions& options) {
    LinkState s;
    s.memory = &segment->memory();
    s.segment = std::move(segment);
    s.side = side;
    s.peer = options.peer;
    s.peer_wakeup_fd = wakeup_fd;
    s.same_process = same_process;
    s.own_processors = s.segment->turns() == Turns::kNone;
    s.far = options.far;
    s.slots_ahead = options.slots_ahead;
    s.regions = regions;
    if (regions != nullptr) s.peer_end = EndWatch(regions->socket());
    return s;
  }

  std::unique_ptr<PeerRegions> regions_;
  UniqueFd owned_wakeup_fd_;
  // Null within a process; and where ranks take turns, which gains nothing that could be measured.
  std::unique_ptr<CrossMemory> cross_memory_;
  LinkState state_;
  ShmSendLane send_;
  ShmRecvLane recv_;
  Deadline patience_ = Deadline::after_ms(0);  // of revoked()
};

}  // namespace

std::unique_ptr<Link> make_shared_link(std::shared_ptr<Segment> segment, int side, UniqueFd peer_wakeup_fd,
                                       UniqueFd socket, bool same_process, const LinkOptions& options) {
  SegmentMemory& memory = segment->memory();
  auto regions = std::make_unique<PeerRegions>(std::move(socket), &memory.announced[side].value,
                                               &memory.announced[1 - side].value);
  return std::make_unique<ShmLink>(std::move(segment), side, std::move(peer_wakeup_fd), -1, same_process,
                                   std::move(regions), options);
}

std::unique_ptr<Link> make_private_link(std::shared_ptr<Segment> segment, int side, int peer_wakeup_fd,
                                        const LinkOptions& options) {
  return std::make_unique<ShmLink>(std::move(segment), side, UniqueFd(), peer_wakeup_fd, true, nullptr, options);
}

}  // namespace tutti::internal::transport::shm
