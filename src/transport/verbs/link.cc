#include "transport/verbs/link.h"

#include <sched.h>

#include <utility>

#include "base/clock.h"

namespace tutti::internal::transport::verbs {
namespace {

// How long the end of a link waits for what was sent last: longer than a few lost packets take.
constexpr std::int64_t kLingerMs = 2000;

LaneTraits make_traits(bool lends) {
  LaneTraits traits;
  traits.transport = "verbs";
  traits.slots = true;
  traits.takes_offers = true;
  traits.puts_directly = true;
  traits.piece_bytes = kSlotBytes;
  traits.lend_bytes = kLendBytes;
  if (lends) traits.lend_any_bytes = kLendBytes;
  return traits;
}

}  // namespace

VerbsLink::VerbsLink(std::unique_ptr<Connection> connection, memory::RegistrationCache& cache, bool lends)
    : connection_(std::move(connection)),
      cache_(cache),
      send_(*connection_, cache, make_traits(lends)),
      recv_(*connection_, cache, make_traits(lends)) {}

VerbsLink::~VerbsLink() {
  const Deadline deadline = Deadline::after_ms(kLingerMs);
  while (!connection_->flushed() && !deadline.passed()) ::sched_yield();
}

std::unique_ptr<Link> make_link(std::unique_ptr<Connection> connection, memory::RegistrationCache& cache, bool lends) {
  return std::make_unique<VerbsLink>(std::move(connection), cache, lends);
}

}  // namespace tutti::internal::transport::verbs
