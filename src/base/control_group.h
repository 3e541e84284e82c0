// Limits of the control groups that this process is in (cgroups(7)).
//
// Threads: any; nothing here has state.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace tutti::internal {

// A limit and how much of it is used; nothing: there is no limit.
struct Limit {
  std::optional<std::uint64_t> most;
  std::uint64_t used = 0;
};

// Of this process's group and those around it, the limit that leaves least. The files of a group are named as version 2
// and version 1 call them.
Limit group_limit(const std::string& controller, const char* most_2, const char* used_2, const char* most_1,
                  const char* used_1);

// Of processes and threads.
Limit group_limit_of_threads();

// For messages, before the text of ENOMEM of mmap(2): the limits of memory that this process is held to, with their
// values. Empty for other errors.
std::string memory_advice(int error_number);

// Of those RLIMIT_AS and RLIMIT_DATA, where they are finite: "ulimit -v is 40000 KiB". Does not read files.
std::string limits_of_addresses();

// For messages, behind the text of EAGAIN where a thread could not be started: the limits of threads that this process
// is held to, with their values. Empty for other errors.
std::string thread_advice(int error_number);

}  // namespace tutti::internal
