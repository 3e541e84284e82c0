#include "transport/verbs/link.h"

#include <sched.h>

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "transport/plain.h"
#include "transport/verbs/recv.h"
#include "transport/verbs/send.h"

namespace tutti::internal::transport::verbs {
namespace {

// A switched network of today; only the ratios decide.
constexpr double kLatencyUs = 2;
constexpr double kBitsPerByte = 8;
// How long the end of a link waits for what was sent last: longer than a few lost packets take.
constexpr std::int64_t kLingerMs = 2000;

LaneTraits make_traits(Conduit& conduit, bool lends) {
  LaneTraits traits;
  traits.transport = "verbs";
  traits.slots = true;
  traits.takes_offers = true;
  traits.places_pushes = true;
  traits.piece_bytes = kSlotBytes;
  traits.lend_bytes = kLendBytes;
  if (lends) traits.lend_any_bytes = kLendBytes;
  traits.latency_us = kLatencyUs;
  for (const RailState& rail : conduit.rails()) traits.bandwidth_gbs += rail.device->port().gbits / kBitsPerByte;
  traits.bandwidth_gbs = std::max(traits.bandwidth_gbs, 0.1);
  return traits;
}

class VerbsLink final : public PlainLink {
 public:
  VerbsLink(std::unique_ptr<Conduit> conduit, memory::RegistrationCache& cache, bool lends)
      : conduit_(std::move(conduit)),
        cache_(cache),
        send_(*conduit_, cache, make_traits(*conduit_, lends)),
        recv_(*conduit_, cache, make_traits(*conduit_, lends)) {}
  // The peer may still be without what was sent last, and a destroyed queue pair sends nothing again.
  ~VerbsLink() override {
    const Deadline deadline = Deadline::after_ms(kLingerMs);
    while (!conduit_->flushed() && !deadline.passed()) ::sched_yield();
  }

  SendLane& send() override { return send_; }
  RecvLane& recv() override { return recv_; }
  bool arm() override { return conduit_->arm(); }
  void disarm() override { conduit_->disarm(); }
  [[nodiscard]] int wait_fd() const override { return conduit_->wait_fd(); }
  void begin_operation() override { cache_.begin_operation(); }
  // Without queue pairs no device reads what was lent or writes what was offered.
  void revoke() override { conduit_->close(Status::remote("the link was given up")); }
  bool flushed() override { return conduit_->flushed(); }
  void farewell() override { conduit_->say_farewell(); }
  [[nodiscard]] Conduit& conduit() { return *conduit_; }

 private:
  std::unique_ptr<Conduit> conduit_;
  memory::RegistrationCache& cache_;
  VerbsSend send_;
  VerbsRecv recv_;
};

}  // namespace

std::unique_ptr<Link> make_link(std::unique_ptr<Conduit> conduit, memory::RegistrationCache& cache, bool lends) {
  return std::make_unique<VerbsLink>(std::move(conduit), cache, lends);
}

Conduit& conduit_of(Link& link) {
  return dynamic_cast<VerbsLink&>(link).conduit();
}

}  // namespace tutti::internal::transport::verbs
