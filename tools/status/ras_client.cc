#include "ras_client.h"

#include <fmt/core.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <iterator>
#include <list>
#include <optional>
#include <span>
#include <utility>

#include "monitor/ras.h"
#include "net/socket.h"
#include "os/kernel.h"

namespace tutti::internal::tools {
namespace {

// A connection that is not answered may have got to a stopped process: others are begun beside it.
constexpr std::int64_t kNextMs = 100;          // after which the first of them begins
constexpr std::int64_t kLongestNextMs = 2000;  // on busy machines
constexpr std::size_t kMostAtOnce = 16;        // the oldest ones are given up
constexpr int kStepMs = 1000;
constexpr char kNoAnswer[] = "no process of the job answers";
constexpr char kGreeted[] = "SERVER PROTOCOL ";

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

Status unexpected(const std::string& answer) {
  return Status::remote(fmt::format("the process has answered \"{}\"", answer));
}

}  // namespace

// The greetings that wait for an answer.
class RasClient::Greeting {
 public:
  explicit Greeting(const std::vector<net::Address>& addresses) : addresses_(addresses), refusals_(addresses.size()) {}

  // One more for each address.
  void begin() {
    for (std::size_t i = 0; i < addresses_.size(); ++i) {
      auto fd = net::start_connect(addresses_[i]);
      note(i, fd.status());
      if (fd.is_ok()) attempts_.push_back({RasClient(std::move(*fd)), i, false});
    }
    while (attempts_.size() > kMostAtOnce) attempts_.pop_front();
  }

  // What the first process has answered to. Nothing: none has by `until`.
  Result<std::optional<RasClient>> await(Deadline until) {
    std::vector<pollfd> entries;
    for (const Attempt& attempt : attempts_) {
      entries.push_back({attempt.client.fd_.get(), static_cast<short>(attempt.connected ? POLLIN : POLLOUT), 0});
    }
    const int ready = os::kernel().poll(entries.data(), entries.size(), until.left_ms(kStepMs));
    if (ready < 0 && errno != EINTR) return Status::system("poll", errno);
    auto entry = entries.begin();
    for (auto at = attempts_.begin(); ready > 0 && at != attempts_.end(); ++entry) {
      const Status greeted = entry->revents == 0 ? Status(Code::kInProgress, "") : advance(&*at);
      if (greeted.is_ok()) return std::optional<RasClient>(std::move(at->client));
      note(at->address, greeted);
      at = greeted.code() == Code::kInProgress ? std::next(at) : attempts_.erase(at);
    }
    return std::optional<RasClient>();
  }

  // Whether no process of a job listens at any address; why.
  [[nodiscard]] bool refused(Status* why) const {
    if (!attempts_.empty()) return false;
    for (const Status& refusal : refusals_) {
      if (refusal.is_ok()) return false;
      *why = refusal;
    }
    return true;
  }

 private:
  struct Attempt {
    RasClient client;
    std::size_t address;
    bool connected;
  };

  void note(std::size_t address, const Status& status) {
    const bool may_answer = status.code() == Code::kTimeout || status.code() == Code::kInProgress;
    refusals_[address] = may_answer ? Status() : status;
  }

  // kTimeout: it will not answer any more, but another process may.
  [[nodiscard]] Status advance(Attempt* attempt) const {
    RasClient& client = attempt->client;
    if (!attempt->connected) {
      if (Status s = net::connect_result(client.fd_.get()); !s.is_ok()) {
        return s.with_context(addresses_[attempt->address].text());
      }
      attempt->connected = true;
      const Status sent = client.send(monitor::kRasGreeting, Deadline::after_ms(0));
      return sent.with_code(sent.is_ok() ? Code::kInProgress : Code::kTimeout);
    }
    bool over = false;
    if (Status s = client.receive(Deadline::after_ms(0), &over); !s.is_ok()) return s;
    const std::size_t end = client.heard_.find('\n');
    // At its end: the process ends, or has too many clients.
    if (end == std::string::npos) return {over ? Code::kTimeout : Code::kInProgress, kNoAnswer};
    const std::string answer = client.heard_.substr(0, end);
    client.heard_.erase(0, end + 1);
    return answer.starts_with(kGreeted) ? Status() : unexpected(answer);
  }

  const std::vector<net::Address>& addresses_;
  std::vector<Status> refusals_;  // of the last connection to each address; ok: a process may answer there
  std::list<Attempt> attempts_;   // oldest first
};

Result<RasClient> RasClient::greet(const std::vector<net::Address>& addresses, Deadline deadline) {
  Status refusal = Status::remote("there is no address");
  Greeting greeting(addresses);
  for (std::int64_t next_ms = kNextMs;; next_ms = std::min(next_ms * 5 / 4, kLongestNextMs)) {
    greeting.begin();
    for (const Deadline next = earlier(Deadline::after_ms(next_ms), deadline);;) {
      auto client = greeting.await(next);
      if (!client.is_ok()) return client.status();
      if (*client) return std::move(**client);
      if (greeting.refused(&refusal)) return refusal;
      if (next.passed()) break;
    }
    if (deadline.passed()) return Status::timeout(kNoAnswer);
  }
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
  return unexpected(answer);
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
