#include "tools/trace/trace_events.h"

#include <cerrno>
#include <nlohmann/json.hpp>

namespace tutti::internal::tools {

std::string title_of(schedule::StepKind kind, int peer) {
  using schedule::StepKind;
  switch (kind) {
    case StepKind::kSend: return fmt::format("send to {}", peer);
    case StepKind::kRecv: return fmt::format("receive from {}", peer);
    case StepKind::kRecvReduce: return fmt::format("receive from {} and reduce", peer);
    case StepKind::kCopy: return "copy";
    case StepKind::kReduce: return "reduce";
  }
  return {};
}

TraceEvents::TraceEvents(const std::string& path) : path_(path), file_(std::fopen(path.c_str(), "we")) {
  if (file_ == nullptr) {
    error_ = errno;
    return;
  }
  std::fputs("{\"displayTimeUnit\": \"ns\", \"traceEvents\": [\n", file_.get());
}

std::string TraceEvents::quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

void TraceEvents::name(const char* what, std::size_t process, int row, const std::string& text) {
  event(R"({{"ph":"M","name":"{}","pid":{},"tid":{},"args":{{"name":{}}}}})", what, process, row, quoted(text));
}

// Perfetto would else sort the rows by their names.
void TraceEvents::name_row(std::size_t process, int row, const std::string& text) {
  name("thread_name", process, row, text);
  event(R"({{"ph":"M","name":"thread_sort_index","pid":{},"tid":{},"args":{{"sort_index":{}}}}})", process, row, row);
}

void TraceEvents::slice(std::string_view category, const std::string& name, std::size_t process, int row,
                        double begin_us, double length_us, const std::string& arguments) {
  event(R"({{"ph":"X","cat":"{}","name":"{}","pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f},"args":{{{}}}}})", category,
        name, process, row, begin_us, length_us, arguments);
}

void TraceEvents::arrow(std::string_view what, std::size_t from, int from_row, double from_us, std::size_t to,
                        int to_row, double to_us) {
  ++arrows_;
  event(R"({{"ph":"s","cat":"{0}","name":"{0}","id":{1},"pid":{2},"tid":{3},"ts":{4:.3f}}})", what, arrows_, from,
        from_row, from_us);
  event(R"({{"ph":"f","bp":"e","cat":"{0}","name":"{0}","id":{1},"pid":{2},"tid":{3},"ts":{4:.3f}}})", what, arrows_,
        to, to_row, to_us);
}

Status TraceEvents::finish() {
  if (file_ == nullptr) return Status::system(path_, error_);
  std::fputs("\n]}\n", file_.get());
  const bool failed = std::ferror(file_.get()) != 0;
  if (std::fclose(file_.release()) != 0 || failed) return Status::system("writing " + path_, errno);
  return {};
}

}  // namespace tutti::internal::tools
