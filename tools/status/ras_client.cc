#include "ras_client.h"

#include <fmt/core.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <span>
#include <utility>

#include "monitor/ras.h"
#include "net/socket.h"
#include "os/kernel.h"

namespace tutti::internal::tools {
namespace {

constexpr std::int64_t kTryMs = 1000;         // for a process to answer, at first
constexpr std::int64_t kLongestTryMs = 5000;  // on busy machines
constexpr std::int64_t kPauseMs = 50;
constexpr int kStepMs = 1000;
constexpr char kNoRoute[] = "no process of the job answers";

Status wait_until(int fd, short events, Deadline deadline, const char* what) {
  for (;;) {
    pollfd entry{fd, events, 0};
    const int ready = os::kernel().poll(&entry, 1, deadline.left_ms(kStepMs));
    if (ready > 0) return {};
    if (ready < 0 && errno != EINTR) return Status::system("poll", errno);
    if (deadline.passed()) return Status::timeout(what);
  }
}

Deadline earlier(Deadline a, Deadline b) {
  return a.at_ns() < b.at_ns() ? a : b;
}

}  // namespace

Result<RasClient> RasClient::greet(const std::vector<net::Address>& addresses, Deadline deadline) {
  for (std::int64_t try_ms = kTryMs;; try_ms = std::min(try_ms * 5 / 4, kLongestTryMs)) {
    Status last = Status::remote("there is no address");
    bool any_listens = false;
    for (const net::Address& address : addresses) {
      auto client = greet_once(address, earlier(Deadline::after_ms(try_ms), deadline));
      if (client.is_ok()) return client;
      last = client.status();
      any_listens = any_listens || last.code() == Code::kTimeout || last.code() == Code::kInProgress;
    }
    if (!any_listens) return last;
    if (deadline.passed()) return Status::timeout(kNoRoute);
    const Deadline pause = Deadline::after_ms(kPauseMs);
    while (!pause.passed()) static_cast<void>(os::kernel().poll(nullptr, 0, pause.left_ms(kStepMs)));
  }
}

// kRemoteError: no process listens there.
Result<RasClient> RasClient::greet_once(const net::Address& address, Deadline deadline) {
  auto fd = net::start_connect(address);
  if (!fd.is_ok()) return fd.status();
  if (Status s = wait_until(fd->get(), POLLOUT, deadline, kNoRoute); !s.is_ok()) return s;
  if (Status s = net::connect_result(fd->get()); !s.is_ok()) return s.with_context(address.text());
  RasClient client(std::move(*fd));
  Status greeted = client.command(monitor::kRasGreeting, "SERVER PROTOCOL ", deadline);
  // A process that ends now, or has too many clients: another one may answer.
  if (greeted.code() == Code::kRemoteError && client.heard_.empty()) return greeted.with_code(Code::kTimeout);
  if (!greeted.is_ok()) return greeted;
  return client;
}

Status RasClient::send(const std::string& line, Deadline deadline) {
  return net::send_all(fd_.get(), std::as_bytes(std::span(line)), deadline);
}

Status RasClient::receive(Deadline deadline, bool* over) {
  std::array<char, 65536> bytes{};
  *over = false;
  if (Status s = wait_until(fd_.get(), POLLIN, deadline, "the process does not answer"); !s.is_ok()) return s;
  const ssize_t got = os::kernel().recv(fd_.get(), bytes.data(), bytes.size());
  if (got < 0 && (net::would_block(errno) || errno == EINTR)) return {};
  if (got < 0 && errno != ECONNRESET) return Status::system("receiving", errno);
  if (got <= 0) {
    *over = true;
  } else {
    heard_.append(bytes.data(), static_cast<std::size_t>(got));
  }
  return {};
}

Status RasClient::command(const std::string& line, const std::string& expected, Deadline deadline) {
  if (Status s = send(line, deadline); !s.is_ok()) return s;
  bool over = false;
  while (heard_.find('\n') == std::string::npos) {
    if (Status s = receive(deadline, &over); !s.is_ok()) return s;
    if (over) return Status::remote("the process has closed the connection");
  }
  const std::string answer = heard_.substr(0, heard_.find('\n'));
  heard_.erase(0, answer.size() + 1);
  if (answer.starts_with(expected)) return {};
  heard_ = answer;
  return Status::remote(fmt::format("the process has answered \"{}\"", answer));
}

Status RasClient::listen(const std::string& line, Deadline deadline, const Take& take) {
  if (Status s = send(line, deadline); !s.is_ok()) return s;
  bool over = false;
  bool any = false;
  while (!over) {
    if (Status s = receive(deadline, &over); !s.is_ok()) return s;
    any = any || !heard_.empty();
    if (!heard_.empty() && !take(heard_)) return {};
    heard_.clear();
  }
  return any ? Status() : Status::remote("the process has closed the connection");
}

Status RasClient::follow(const Take& take) {
  bool over = false;
  while (!over) {
    if (!heard_.empty() && !take(heard_)) return {};
    heard_.clear();
    Status received = receive(Deadline::after_ms(kStepMs), &over);
    if (!received.is_ok() && received.code() != Code::kTimeout) return received;
  }
  return {};
}

}  // namespace tutti::internal::tools
