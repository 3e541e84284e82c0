// Two ranks connected by RDMA: see wire.h for what travels, conduit.h for what lies between.
#pragma once

#include <memory>

#include "memory/registration.h"
#include "transport/transport.h"
#include "transport/verbs/conduit.h"

namespace tutti::internal::transport::verbs {

// `cache` belongs to what the conduit keeps alive. `lends`: user memory can be registered.
std::unique_ptr<Link> make_link(std::unique_ptr<Conduit> conduit, memory::RegistrationCache& cache, bool lends);

// What lies under a link that make_link() has made: for tests that break it.
Conduit& conduit_of(Link& link);

}  // namespace tutti::internal::transport::verbs
