// What a person asks first of a job, in the log.
#pragma once

#include <cstdint>

#include "epoch/membership.h"
#include "net/auth.h"

namespace tutti::internal {

// Of this process's first job, once this rank has joined: rank 0 writes version, ranks and hosts, which transports
// connect whom and where it is reached, what the environment sets, and how long the ranks took to join; a rank that
// lacks processors says so. From now on lines have the rank.
void log_joined(const Membership& membership, const Secret& secret, std::int64_t joined_ms);

}  // namespace tutti::internal
