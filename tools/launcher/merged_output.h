// Output of many ranks on one descriptor: line by line, each line of one rank.
#pragma once

#include <poll.h>

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "os/unique_fd.h"

namespace tutti::internal::tools {

// The end that a rank writes to, and the end that the launcher reads. Both are close-on-exec; reading does not block.
struct OutputPipe {
  UniqueFd source;
  UniqueFd sink;
};
// A pseudo-terminal if `destination` is a terminal, so that programs write each line at once.
Result<OutputPipe> open_output_pipe(int destination);

// Never blocks: the caller polls, with watch() before and serve() after. Holds at most about 64 KiB for each source and
// does not read while the destination does not accept what was read.
class MergedOutput {
 public:
  // `labelled`: each line begins with the rank, as "[2] ".
  MergedOutput(int destination, bool labelled);

  void add(int rank, UniqueFd source);
  // A line of the launcher's own.
  void say(const std::string& line);

  // Appends what to poll for, and shortens the timeout (milliseconds, -1: none).
  void watch(std::vector<pollfd>* entries, int* timeout_ms);
  // Reads and writes what it can. Returns 0, or errno where the destination takes nothing any more; what comes later is
  // dropped. REQUIRES: `entries` begin with what they were behind watch().
  [[nodiscard]] int serve(const std::vector<pollfd>& entries);
  // No process writes to the sources any more; they hold the last bytes.
  void expect_the_last() { last_ = true; }
  [[nodiscard]] bool done() const { return sources_.empty() && unwritten_.empty(); }

 private:
  struct Source {
    int rank = -1;
    UniqueFd fd;
    std::string line = {};  // that has not ended
    std::int64_t read_ns = 0;
    std::size_t entry = 0;  // in what is polled
    bool ended = false;
  };
  void read(Source& source);
  void emit(int rank, std::string_view text);
  int write_some();
  void forget();

  const int destination_;
  const bool labelled_;
  const bool terminal_;
  std::deque<Source> sources_;  // the first is read first, and then is the last
  std::string unwritten_;
  std::size_t written_ = 0;  // bytes of it, which have been
  int unfinished_ = -1;      // rank whose line the destination has a part of
  std::size_t destination_entry_ = 0;
  bool waits_to_write_ = false;
  bool last_ = false;
  bool broken_ = false;
};

}  // namespace tutti::internal::tools
