// Limits of the control groups that this process is in (cgroups(7)).
//
// Threads: any; nothing here has state.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tutti::internal {

struct ControlGroup {
  std::string folder;
  int version = 2;  // of its hierarchy
};

// This process's groups with the controller, from its own to the outermost visible one, in each mounted hierarchy; some
// may not exist here. `root`: replaces the folder / (tests).
std::vector<ControlGroup> control_groups(const std::string& controller, const std::string& root = "");

// A limit and its current use; empty: there is no limit.
struct Limit {
  std::optional<std::uint64_t> most;
  std::uint64_t used = 0;
};

// Of this process's group and the groups around it, the limit that leaves the least. The names are those of the files
// in version 2 and version 1.
Limit group_limit(const std::string& controller, const char* most_2, const char* used_2, const char* most_1,
                  const char* used_1);

// Of processes and threads.
Limit group_limit_of_threads();

// For messages, before the text of ENOMEM of mmap(2): the memory limits of this process, with their values. Empty for
// other errors.
std::string memory_advice(int error_number);

// Only RLIMIT_AS and RLIMIT_DATA, if they are finite: "ulimit -v is 40000 KiB". Does not read files.
std::string limits_of_addresses();

// For messages, after the text of EAGAIN when a thread could not be started: the thread limits of this process, with
// their values. Empty for other errors.
std::string thread_advice(int error_number);

}  // namespace tutti::internal
