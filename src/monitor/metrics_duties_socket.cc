// Lines of metrics for a process that listens at a Unix socket.
#include <poll.h>

#include <cerrno>
#include <cstddef>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "monitor/metrics_duties.h"
#include "monitor/metrics_periodic.h"
#include "net/address.h"
#include "net/socket.h"
#include "os/kernel.h"
#include "os/unique_fd.h"

namespace tutti::internal::monitor {
namespace {

// What the listener has not read yet; further lines are dropped.
constexpr std::size_t kMostPendingBytes = std::size_t{1} << 20;

class LinesSocket final : public PeriodicDuty {
 public:
  LinesSocket(const net::Address& address, const MetricsWriter& writer)
      : PeriodicDuty(writer, "TUTTI_METRICS: unix:" + address.text()), address_(address), lines_(writer) {}
  ~LinesSocket() override {
    write_last();
    // What fits into the socket's buffer.
    flush();
  }
  void prepare(net::PollSet* set) override {
    PeriodicDuty::prepare(set);
    polled_ = socket_.valid();
    if (polled_) entry_ = set->add(socket_.get(), pending_.empty() ? 0 : POLLOUT);
  }
  void advance(const net::PollSet& set) override {
    if (polled_ && (set.ready(entry_) & (POLLERR | POLLHUP)) != 0) {
      close();
    } else if (polled_ && (set.ready(entry_) & POLLOUT) != 0) {
      flush();
    }
    polled_ = false;
    PeriodicDuty::advance(set);
  }

 private:
  Status write() override {
    Status connected = connect();
    auto lines = lines_.next();
    if (!lines.is_ok()) return lines.status();
    for (std::string& line : *lines) {
      // They are not sent later: old values would be taken for new ones.
      if (!connected.is_ok() || pending_bytes_ + line.size() > kMostPendingBytes) continue;
      pending_bytes_ += line.size();
      pending_.push_back(std::move(line));
    }
    flush();
    return connected;
  }

  Status connect() {
    if (socket_.valid()) return {};
    auto made = net::start_connect(address_);
    if (!made.is_ok()) return made.status();
    socket_ = std::move(*made);
    return {};
  }

  void close() {
    socket_.reset();
    pending_.clear();
    pending_bytes_ = sent_ = 0;
  }

  void flush() {
    while (socket_.valid() && !pending_.empty()) {
      const std::string& line = pending_.front();
      const ssize_t sent = os::kernel().send(socket_.get(), line.data() + sent_, line.size() - sent_);
      if (sent < 0 && errno == EINTR) continue;
      if (sent < 0 && net::would_block(errno)) return;
      if (sent < 0) return close();
      sent_ += static_cast<std::size_t>(sent);
      if (sent_ < line.size()) continue;
      pending_bytes_ -= line.size();
      pending_.pop_front();
      sent_ = 0;
    }
  }

  const net::Address address_;
  LinesOfProcess lines_;
  UniqueFd socket_;  // none: no process listens
  std::size_t entry_ = 0;
  bool polled_ = false;
  std::deque<std::string> pending_;
  std::size_t pending_bytes_ = 0;
  std::size_t sent_ = 0;  // of the first pending line
};

}  // namespace

Result<std::unique_ptr<Duty>> make_lines_socket(const std::string& path, const MetricsWriter& writer) {
  auto address = net::Address::unix_path(path);
  if (!address.is_ok()) return address.status();
  return std::unique_ptr<Duty>(std::make_unique<LinesSocket>(*address, writer));
}

}  // namespace tutti::internal::monitor
