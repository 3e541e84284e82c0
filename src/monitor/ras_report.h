// The reports of the server for NCCL's RAS protocol.
//
// Threads: any; no function here has state.
#pragma once

#include <string>

#include "monitor/job_reading.h"

namespace tutti::internal::monitor {

// For programs: the keys and types of NCCL's report, and keys of tutti's own. A rank that was not found, or whose
// process is stopped, is among the missing ones, as an unresponsive rank of NCCL is.
std::string ras_json(const JobReading& reading);

// For people. verbose: with a line for each rank.
std::string ras_text(const JobReading& reading, bool verbose);

// The present as "2026-11-30 18:40:00", in UTC: the C library's calendar of local times takes a lock, which a forked
// child could inherit.
std::string ras_time();

}  // namespace tutti::internal::monitor
