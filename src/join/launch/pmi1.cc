#include "join/launch/pmi1.h"

#include <fmt/core.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <optional>

#include "join/unique_id.h"
#include "os/fork.h"
#include "os/mutex.h"

namespace tutti::internal {
namespace {

constexpr std::size_t kMaxLine = 64 << 10;

// Values are words in lines, so the id is sent as hexadecimal digits, cut to the server's limit.
class Pmi1Client {
 public:
  Pmi1Client(int fd, Deadline deadline) : fd_(fd), deadline_(deadline) {}
  Status init();
  Status put(const std::string& key, const std::string& value);
  Result<std::string> get(const std::string& key);
  Status barrier();
  Status finalize();
  [[nodiscard]] std::size_t value_limit() const { return value_limit_; }

 private:
  // Sends a line and returns the answer, whose command must be `expected`.
  Result<std::string> ask(const std::string& line, const std::string& expected);
  Status send_line(const std::string& line);
  Result<std::string> read_line();
  Status wait(short events);

  int fd_;
  Deadline deadline_;
  std::string kvs_;
  std::size_t value_limit_ = 256;
};

// The word after "name=" in a line, or nothing.
std::optional<std::string> field(const std::string& line, const std::string& name) {
  const std::string text = " " + line;
  const std::size_t at = text.find(fmt::format(" {}=", name));
  if (at == std::string::npos) return std::nullopt;
  const std::size_t begin = at + name.size() + 2;
  return text.substr(begin, text.find(' ', begin) - begin);
}

Status Pmi1Client::wait(short events) {
  for (;;) {
    pollfd entry{fd_, events, 0};
    const int ready = ::poll(&entry, 1, deadline_.left_ms(1000));
    if (ready > 0) return {};
    if (ready < 0 && errno != EINTR) return Status::system("poll", errno);
    if (deadline_.passed()) return Status::timeout("timed out while waiting for the other ranks (PMI)");
  }
}

Status Pmi1Client::send_line(const std::string& line) {
  const std::string bytes = line + "\n";
  for (std::size_t at = 0; at < bytes.size();) {
    if (Status s = wait(POLLOUT); !s.is_ok()) return s;
    const ssize_t sent = ::send(fd_, bytes.data() + at, bytes.size() - at, MSG_NOSIGNAL);
    if (sent < 0 && errno != EINTR && errno != EAGAIN) return Status::system("cannot write to the launcher", errno);
    if (sent > 0) at += static_cast<std::size_t>(sent);
  }
  return {};
}

// Reads byte by byte, because later bytes may belong to another reader.
Result<std::string> Pmi1Client::read_line() {
  std::string line;
  while (line.size() < kMaxLine) {
    if (Status s = wait(POLLIN); !s.is_ok()) return s;
    char byte = 0;
    const ssize_t got = ::recv(fd_, &byte, 1, 0);
    if (got == 0) return Status::remote("the launcher closed its connection");
    if (got < 0 && errno != EINTR && errno != EAGAIN) return Status::system("cannot read from the launcher", errno);
    if (got == 1 && byte == '\n') return line;
    if (got == 1) line += byte;
  }
  return Status::remote(fmt::format("protocol error: the launcher sends a line of more than {} bytes", kMaxLine));
}

Result<std::string> Pmi1Client::ask(const std::string& line, const std::string& expected) {
  if (Status s = send_line(line); !s.is_ok()) return s;
  Result<std::string> answer = read_line();
  if (!answer.is_ok()) return answer;
  const std::string rc = field(*answer, "rc").value_or("0");
  if (field(*answer, "cmd") != expected || rc != "0") {
    return Status::remote(fmt::format("the launcher answers \"{}\" to \"{}\"", *answer, line));
  }
  return answer;
}

Status Pmi1Client::init() {
  Result<std::string> answer = ask("cmd=init pmi_version=1 pmi_subversion=1", "response_to_init");
  if (!answer.is_ok()) return answer.status();
  answer = ask("cmd=get_maxes", "maxes");
  if (!answer.is_ok()) return answer.status();
  const auto limit = parse_integer(field(*answer, "vallen_max").value_or(""), 8, 1 << 20);
  if (!limit) return Status::remote("the launcher's limits are unreadable: " + *answer);
  value_limit_ = static_cast<std::size_t>(*limit) - 1;
  answer = ask("cmd=get_my_kvsname", "my_kvsname");
  if (!answer.is_ok()) return answer.status();
  const auto name = field(*answer, "kvsname");
  if (!name) return Status::remote("the launcher names no key-value space: " + *answer);
  kvs_ = *name;
  return {};
}

Status Pmi1Client::put(const std::string& key, const std::string& value) {
  return ask(fmt::format("cmd=put kvsname={} key={} value={}", kvs_, key, value), "put_result").status();
}

Result<std::string> Pmi1Client::get(const std::string& key) {
  Result<std::string> answer = ask(fmt::format("cmd=get kvsname={} key={}", kvs_, key), "get_result");
  if (!answer.is_ok()) return answer;
  const auto value = field(*answer, "value");
  if (!value) return Status::remote("the launcher has no value for " + key);
  return *value;
}

Status Pmi1Client::barrier() {
  return ask("cmd=barrier_in", "barrier_out").status();
}

Status Pmi1Client::finalize() {
  return ask("cmd=finalize", "finalize_ack").status();
}

// The connection as tutti used it. MPI_Finalize sends the end of the protocol itself and closes the connection.
struct Farewell {
  int fd = -1;
  dev_t device = 0;
  ino_t inode = 0;
  pid_t process = 0;  // not for forked children
};
ForkMutex& farewell_mutex = *new ForkMutex;
Farewell farewell TUTTI_GUARDED_BY(farewell_mutex);

void say_farewell() {
  Farewell last;
  {
    const MutexLock lock(farewell_mutex);
    last = farewell;
  }
  struct stat now {};
  if (last.process != ::getpid() || ::fstat(last.fd, &now) != 0) return;
  if (now.st_dev != last.device || now.st_ino != last.inode) return;
  constexpr std::int64_t kFarewellMs = 1000;
  // The process ends either way.
  static_cast<void>(Pmi1Client(last.fd, Deadline::after_ms(kFarewellMs)).finalize().is_ok());
}

Status prepare_farewell(int fd) {
  const MutexLock lock(farewell_mutex);
  struct stat now {};
  if (::fstat(fd, &now) != 0) return Status::system("PMI_FD", errno);
  const bool first = farewell.process != ::getpid();
  farewell = {fd, now.st_dev, now.st_ino, ::getpid()};
  if (first && std::atexit(say_farewell) != 0) return Status::internal("atexit");
  return {};
}

}  // namespace

Result<LaunchedJob> exchange_over_pmi1(int fd, int rank, int ranks, const Settings& settings, Deadline deadline) {
  // A key can be written once, so each exchange of a process uses new keys; all ranks count the exchanges in the same
  // way.
  static std::atomic<int> exchanges{0};
  const std::string prefix = fmt::format("tutti-{}-", exchanges.fetch_add(1));
  Pmi1Client client(fd, deadline);
  if (Status s = prepare_farewell(fd); !s.is_ok()) return s;
  if (Status s = client.init(); !s.is_ok()) return s;
  const std::size_t digits = 2 * kUniqueIdBytes;
  const std::size_t piece = std::min(digits, client.value_limit());
  if (rank == 0) {
    Result<UniqueIdBytes> id = create_unique_id(settings);
    if (!id.is_ok()) return id.status();
    const std::string hex = unique_id_to_hex(*id);
    for (std::size_t at = 0; at < digits; at += piece) {
      if (Status s = client.put(prefix + std::to_string(at), hex.substr(at, piece)); !s.is_ok()) return s;
    }
  }
  if (Status s = client.barrier(); !s.is_ok()) return s;
  std::string hex;
  for (std::size_t at = 0; at < digits; at += piece) {
    Result<std::string> value = client.get(prefix + std::to_string(at));
    if (!value.is_ok()) return value.status();
    hex += *value;
  }
  Result<UniqueIdBytes> id = unique_id_from_hex(hex);
  if (!id.is_ok()) return id.status();
  return LaunchedJob{"pmi1", rank, ranks, *id};
}

}  // namespace tutti::internal
