#include "transport/verbs/link.h"

#include <sched.h>

#include <utility>

#include "os/clock.h"

namespace tutti::internal::transport::verbs {
namespace {

// How long the end of a link waits until the last messages are sent: longer than a few lost packets delay them.
constexpr std::int64_t kLingerMs = 2000;

LaneTraits make_traits(bool any_memory) {
  LaneTraits traits;
  traits.transport = "verbs";
  traits.slots = true;
  traits.takes_advertisements = true;
  traits.puts_directly = true;
  traits.piece_bytes = kSlotBytes;
  traits.zcopy_bytes = traits.least_zcopy_bytes = kZcopyBytes;
  if (any_memory) traits.zcopy_any_bytes = kZcopyBytes;
  return traits;
}

}  // namespace

VerbsLink::VerbsLink(std::unique_ptr<Connection> connection, memory::RegistrationUser& registrations, bool any_memory)
    : connection_(std::move(connection)),
      wait_fd_(connection_->completions().wait_fd()),
      registrations_(registrations),
      send_(*connection_, registrations, make_traits(any_memory)),
      recv_(*connection_, registrations, make_traits(any_memory)) {}

VerbsLink::~VerbsLink() {
  // An error is ignored: if memory for its text is missing, it cannot be reported either.
  (void)guarded([&] {
    const Deadline deadline = Deadline::after_ms(kLingerMs);
    while (!connection_->flushed() && !deadline.passed()) ::sched_yield();
    return Status();
  });
}

std::unique_ptr<Link> make_link(std::unique_ptr<Connection> connection, memory::RegistrationUser& registrations,
                                bool any_memory) {
  return std::make_unique<VerbsLink>(std::move(connection), registrations, any_memory);
}

}  // namespace tutti::internal::transport::verbs
