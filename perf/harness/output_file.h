// A file for results. It is opened before anything is measured, so that a wrong path does not cost the results, and
// what it holds stays.
#pragma once

#include <sys/types.h>

#include <string>

#include "base/status.h"

namespace tutti::internal::perf {

class OutputFile {
 public:
  // Only to learn whether it can be written: what it holds stays.
  static Result<OutputFile> open(const std::string& path);
  // A new empty file. If `path` is a file with contents, the name is `path`.0, `path`.1 and so on, as in nccl-tests.
  // `path` may be a pipe or a device.
  static Result<OutputFile> open_beside(const std::string& path);
  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&&) = delete;
  ~OutputFile();

  [[nodiscard]] const std::string& path() const { return path_; }
  // `text` at the end of what has been appended, and behind it `end`, which the next call replaces, in one write(2). A
  // pipe, a device and the standard output, where nothing can be replaced, get all `text` when the file is closed.
  // REQUIRES: open_beside(); `text` and `end` together are not shorter than the `end` before.
  Status append(const std::string& text, const std::string& end);
  Status close();

 private:
  OutputFile(std::string path, int fd);
  Status write(const std::string& text, off_t offset);

  std::string path_;
  int fd_;
  bool replaces_ = false;
  off_t appended_ = 0;
  std::string held_;  // until it is closed
};

}  // namespace tutti::internal::perf
