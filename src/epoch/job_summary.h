// The summary of a job in the log.
#pragma once

#include <cstdint>

#include "epoch/membership.h"
#include "net/auth.h"

namespace tutti::internal {

// For this process's first job, after this rank has joined. Rank 0 logs version, ranks and hosts, the transports within
// and between hosts, its address, the variables in the environment, and the time to join. A rank that lacks processors
// logs that. From now on log lines include the rank.
void log_joined(const Membership& membership, const Secret& secret, std::int64_t joined_ms);

}  // namespace tutti::internal
