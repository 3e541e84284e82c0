// Metrics over HTTP.
#include <fmt/core.h>

#include <string_view>
#include <utility>

#include "monitor/line_server.h"
#include "monitor/listener.h"
#include "monitor/metrics_duties.h"
#include "monitor/prometheus.h"
#include "os/clock.h"

namespace tutti::internal::monitor {
namespace {

constexpr std::string_view kPrometheusText = "text/plain; version=0.0.4; charset=utf-8";
// Many clients share one reading.
constexpr std::int64_t kFreshMs = 100;
// Longer requests are not from a client of metrics.
constexpr int kMostHeaders = 100;
constexpr std::size_t kMostPendingTexts = std::size_t{64} << 20;  // that clients have not read yet

// The path of "/metrics?name=x", and of "http://host:port/metrics", which proxies send.
std::string_view path_of(std::string_view target) {
  constexpr std::string_view kScheme = "http://";
  if (target.starts_with(kScheme)) {
    const std::size_t path = target.find('/', kScheme.size());
    target = path == std::string_view::npos ? "/" : target.substr(path);
  }
  return target.substr(0, target.find('?'));
}

class MetricsServer;

// One request. The connection closes after the answer.
class Request final : public Conversation {
 public:
  // Headers are not used, and may be longer than a line: tokens and cookies are.
  explicit Request(MetricsServer& server) : server_(server) { cut_lines(); }
  void hear(std::string_view line) override;

 private:
  void answer(std::string_view status, std::string_view type, std::string_view body);
  void refuse(std::string_view status, std::string_view why = "") { answer(status, "text/plain", why); }

  MetricsServer& server_;
  bool wants_body_ = true;
  std::string first_line_;
  int headers_ = 0;
};

class MetricsServer final : public Duty {
 public:
  explicit MetricsServer(Listener listener)
      : server_(std::move(listener), [this] { return std::make_unique<Request>(*this); }) {}
  void prepare(net::PollSet* set) override { server_.prepare(set); }
  void advance(const net::PollSet& set) override { server_.advance(set); }

  const std::string& text() {
    if (text_.empty() || now_ns() >= stale_ns_) {
      text_ = prometheus_text(observe::read_all_processes().processes);
      stale_ns_ = now_ns() + kFreshMs * kNsPerMs;
    }
    return text_;
  }
  std::size_t pending_bytes() {
    std::size_t pending = 0;
    server_.each([&](Conversation& each) { pending += each.pending_bytes(); });
    return pending;
  }

 private:
  std::string text_;
  std::int64_t stale_ns_ = 0;
  LineServer server_;  // its clients use the rest
};

void Request::hear(std::string_view line) {
  if (first_line_.empty()) {
    first_line_ = line;
    if (line.empty()) refuse("400 Bad Request");
    return;
  }
  if (!line.empty()) {
    if (++headers_ > kMostHeaders) refuse("431 Request Header Fields Too Large");
    return;
  }
  const std::string_view request = first_line_;
  const std::size_t method_end = request.find(' ');
  const std::size_t target_end = request.find(' ', method_end + 1);
  if (target_end == std::string_view::npos || !request.substr(target_end + 1).starts_with("HTTP/")) {
    return refuse("400 Bad Request");
  }
  const std::string_view method = request.substr(0, method_end);
  if (method != "GET" && method != "HEAD") return refuse("405 Method Not Allowed\r\nAllow: GET, HEAD");
  wants_body_ = method == "GET";
  if (path_of(request.substr(method_end + 1, target_end - method_end - 1)) != "/metrics") {
    return refuse("404 Not Found", "The metrics are at /metrics.\n");
  }
  if (server_.pending_bytes() > kMostPendingTexts) return refuse("503 Service Unavailable");
  answer("200 OK", kPrometheusText, server_.text());
}

void Request::answer(std::string_view status, std::string_view type, std::string_view body) {
  say(fmt::format("HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", status, type,
                  body.size()));
  if (wants_body_) say(body);
  end();
}

}  // namespace

Result<std::unique_ptr<Duty>> make_metrics_server(const std::string& address) {
  auto listener = Listener::open(address, "GET / HTTP/1.1\r\n\r\n");
  if (!listener.is_ok()) return listener.status();
  return std::unique_ptr<Duty>(std::make_unique<MetricsServer>(std::move(*listener)));
}

}  // namespace tutti::internal::monitor
