// Files in a folder, which outlive the processes that write them: of events (layout.h) and of traces (trace_file.h).
//
// A file has the name tutti-HOST-PID.KIND, or tutti-HOST-PID-N.KIND if an earlier process, or one in another container,
// has that one. The writer, and a child that it has forked, hold a lock on it (F_OFD_SETLK) as long as they live.
//
// Threads: any; no function here has state.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "os/unique_fd.h"

namespace tutti::internal::observe {

inline constexpr std::string_view kEventsKind = "events";  // removed with the last communicator, if none has failed
inline constexpr std::string_view kTraceKind = "trace";

struct RecordedFile {
  UniqueFd fd;       // empty, open for reading and writing
  std::string path;  // absolute
};

// For this process. Makes the folder, but not its parents. kSystemError names the folder.
Result<RecordedFile> make_recorded(const std::string& folder, std::string_view kind);
// Makes a file longer. Space that is missing is an error here, and not a SIGBUS at the first write.
Status allocate_file(int fd, std::size_t at, std::size_t bytes);

// `path`: of a file, in any folder.
[[nodiscard]] bool is_recorded(std::string_view path, std::string_view kind);
// The paths of the files of the kind in the folder, in rising order. kInvalidArgument: there is no such folder;
// kSystemError: it may not be read.
Result<std::vector<std::string>> find_recorded(const std::string& folder, std::string_view kind);
// Whether a process holds the lock on the file. False also if the file system has no locks.
[[nodiscard]] bool is_being_written(int fd);

}  // namespace tutti::internal::observe
