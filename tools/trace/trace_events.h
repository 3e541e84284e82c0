// A file in the trace event format (JSON), which Perfetto and chrome://tracing open.
#pragma once

#include <fmt/core.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "base/status.h"
#include "schedule/schedule.h"

namespace tutti::internal::tools {

// Of a step, on a row of its rank.
std::string title_of(schedule::StepKind kind, int peer);

// Times in microseconds. A row is a thread of the format: its slices lie in each other or one after the other.
class TraceEvents {
 public:
  // kSystemError of finish(): the file cannot be made or written.
  explicit TraceEvents(const std::string& path);

  void name_process(std::size_t process, const std::string& text) { name("process_name", process, 0, text); }
  void name_row(std::size_t process, int row, const std::string& text);
  // `arguments`: members of a JSON object, without its braces.
  void slice(std::string_view category, const std::string& name, std::size_t process, int row, double begin_us,
             double length_us, const std::string& arguments);
  // From a moment of one row to one of another.
  void arrow(std::string_view what, std::size_t from, int from_row, double from_us, std::size_t to, int to_row,
             double to_us);
  // Nothing may follow.
  Status finish();

  // As a JSON string.
  static std::string quoted(const std::string& text);

 private:
  struct Close {
    void operator()(std::FILE* file) const { (void)std::fclose(file); }
  };
  void name(const char* what, std::size_t process, int row, const std::string& text);
  template <class... Args>
  void event(fmt::format_string<Args...> format, Args&&... args) {
    if (file_ == nullptr) return;
    std::fputs(is_first_ ? "" : ",\n", file_.get());
    is_first_ = false;
    const std::string text = fmt::format(format, std::forward<Args>(args)...);
    (void)std::fwrite(text.data(), 1, text.size(), file_.get());
  }

  const std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
  int error_ = 0;  // of opening it
  std::uint64_t arrows_ = 0;
  bool is_first_ = true;
};

}  // namespace tutti::internal::tools
