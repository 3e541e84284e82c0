// The output of -J: one JSON object. Its file is complete after every row, so a killed run leaves its measurements.
// docs/benchmarks.md describes the format. Only rank 0 uses it.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "options.h"
#include "output_file.h"

namespace tutti::internal::perf {

// Of libtutti: "0.1.0".
std::string library_version();

const char* name_of(Memory memory);

// How calls are made: "blocking", "stream" or "graphs".
const char* name_of_calls(const Options& options);

// "2026-01-31T23:59:59Z", now.
std::string time_of_day();

// The place of a rank; `device` is empty if its buffers are in host memory.
struct RankPlace {
  int rank = 0;
  int pid = 0;
  std::string host;
  std::string device;
};

class Record {
 public:
  Record(const Options& options, const std::vector<RankPlace>& ranks);

  // Begins the file that was asked for, if one was, beside what there is of that name.
  Status begin();
  // The file's path; empty: no file.
  [[nodiscard]] std::string path() const { return file_ ? file_->path() : ""; }
  // One of the results.
  Status add(const nlohmann::json& entry);
  Status finish(std::int64_t errors, double average_busbw_gbs);
  // The whole object. REQUIRES: options.plot_path is not empty; the object is not kept otherwise.
  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  Status append(const std::string& part, const std::string& end);

  const Options& options_;
  std::string head_;
  bool has_entries_ = false;
  std::string text_;
  std::optional<OutputFile> file_;
};

}  // namespace tutti::internal::perf
