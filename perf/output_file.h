// A file for results. It is opened before anything is measured, so that a wrong path does not cost the results, and
// keeps what it holds until there is something to write.
#pragma once

#include <string>

#include "base/status.h"

namespace tutti::internal::perf {

class OutputFile {
 public:
  static Result<OutputFile> open(const std::string& path);
  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&&) = delete;
  ~OutputFile();

  // Puts the text in place of what the file holds.
  Status write(const std::string& text);

 private:
  OutputFile(std::string path, int fd);

  std::string path_;
  int fd_;
};

}  // namespace tutti::internal::perf
