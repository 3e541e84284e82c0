// The steps of joining, one by one, for tests that stop, delay or end a rank between two steps.
#pragma once

#include <unistd.h>

#include <string>
#include <utility>
#include <vector>

#include "join/peer_info.h"
#include "join/root_service.h"
#include "join/unique_id.h"
#include "net/dial.h"
#include "net/frame.h"
#include "os/clock.h"

namespace tutti::internal::test {

inline net::ByteStream connect_to(std::vector<net::Address> addresses, const Secret& secret, const net::Claim& claim,
                                  int expected) {
  net::Dial dial(std::move(addresses), secret, claim, expected);
  net::PollSet set;
  while (!dial.done()) {
    set.clear(1000);
    dial.prepare(&set);
    if (!set.wait().is_ok()) ::_exit(3);
    dial.process(set);
  }
  return dial.take();
}

// The registration of a rank that listens at `addresses`.
inline Registration registration_of(int rank, int ranks, std::int64_t patience_ms, std::vector<std::string> addresses) {
  Registration registration;
  registration.rank = rank;
  registration.ranks = ranks;
  registration.pid = static_cast<std::int32_t>(::getpid());
  registration.patience_ms = patience_ms;
  registration.host = "victim";
  if (const auto process = process_token(); process.is_ok()) registration.process = process.value();
  registration.addresses = std::move(addresses);
  return registration;
}

}  // namespace tutti::internal::test
