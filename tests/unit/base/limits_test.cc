// Log lines that are longer than PIPE_BUF, and threads that a limit refuses.
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <functional>
#include <new>
#include <string>

#include "base/control_group.h"
#include "base/log.h"
#include "base/memfd.h"
#include "base/service_thread.h"
#include "catch_compat.h"
#include "os/unique_fd.h"

namespace tutti::internal {
namespace {

// The text that `body` writes to standard error in a child whose standard error is the descriptor `to`.
void run_in_child(int to, const std::function<void()>& body) {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::dup2(to, STDERR_FILENO);
    body();
    ::_exit(0);
  }
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}

std::string read_from(int fd) {
  std::string text(1 << 20, ' ');
  const ssize_t n = ::read(fd, text.data(), text.size());
  text.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
  return text;
}

std::string in_pipe(const std::string& line) {
  int ends[2] = {-1, -1};
  REQUIRE(::pipe(ends) == 0);
  const UniqueFd reader(ends[0]);
  const UniqueFd writer(ends[1]);
  run_in_child(writer.get(), [&] { log::warn(line); });
  return read_from(reader.get());
}

std::string in_file(const std::string& line) {
  std::FILE* const file = std::tmpfile();
  REQUIRE(file != nullptr);
  run_in_child(::fileno(file), [&] {
    log::warn(line);
    log::warn("next");
  });
  std::rewind(file);
  std::string text = read_from(::fileno(file));
  std::fclose(file);
  return text;
}

}  // namespace

TEST_CASE("text quoted in a log line neither begins a line nor moves a terminal's cursor", "[fork]") {
  const std::string said = in_pipe("a\nb\x1b[31mc\x7f");
  CHECK(said.find("a\\x0ab\\x1b[31mc\\x7f\n") != std::string::npos);
  CHECK(std::count(said.begin(), said.end(), '\n') == 1);
}

TEST_CASE("a log line that is longer than a pipe takes at once says how much is missing", "[fork]") {
  for (const std::size_t bytes : {6000U, 4096U, 100'000U}) {
    INFO(bytes);
    const std::string line = std::string(bytes - 3, 'y') + "END";
    const std::string said = in_pipe(line);
    CHECK(said.size() <= PIPE_BUF);
    CHECK(said.size() > PIPE_BUF - 60);
    const std::size_t begin = said.find("warn: ") + 6;
    const std::size_t mark = said.find(" ... (");
    REQUIRE(mark != std::string::npos);
    const std::size_t shown = mark - begin;
    CHECK(said.substr(mark) == fmt::format(" ... ({} bytes more)\n", bytes - shown));
  }
  // Up to the limit nothing is missing.
  const std::size_t around = in_pipe("").size();
  const std::string longest(PIPE_BUF - around - 8, 'y');  // the process number may be longer
  CHECK(in_pipe(longest).find(longest + "\n") != std::string::npos);
}

TEST_CASE("a log line is cut between characters", "[fork]") {
  for (const char* const shift : {"", "a", "aa"}) {
    std::string line = shift;
    while (line.size() < 5000) line += "\u20ac";
    const std::string said = in_pipe(line);
    const std::size_t mark = said.find(" ... (");
    REQUIRE(mark != std::string::npos);
    CHECK(said.substr(mark - 3, 3) == "\u20ac");
  }
}

TEST_CASE("a log line in a file is whole, whatever its length", "[fork]") {
  const std::string line = std::string(70'000, 'y') + "END";
  const std::string said = in_file(line);
  CHECK(said.find("warn: " + line + "\n") != std::string::npos);
  CHECK(said.find("warn: next\n") != std::string::npos);
}

TEST_CASE("a thread that a limit refuses: the error has the limits with their values", "[fork]") {
  CHECK(thread_advice(ENOMEM).empty());
  int ends[2] = {-1, -1};
  REQUIRE(::pipe(ends) == 0);
  const UniqueFd reader(ends[0]);
  const UniqueFd writer(ends[1]);
  run_in_child(writer.get(), [] {
    // The limit does not apply to root.
    if (::getuid() == 0 && ::setuid(65534) != 0) ::_exit(1);
    const rlimit limit{1, 1};
    if (::setrlimit(RLIMIT_NPROC, &limit) != 0) ::_exit(2);
    ServiceThread thread;
    const Status status = thread.start([] {});
    std::fprintf(stderr, "%s", status.message().c_str());
  });
  const std::string said = read_from(reader.get());
  INFO(said);
  CHECK(said.find("cannot start a thread: Resource temporarily unavailable (thread limits: ") == 0);
  CHECK(said.find("pids.max") != std::string::npos);
  CHECK(said.find("ulimit -u is 1;") != std::string::npos);
  CHECK(said.find("kernel.threads-max is ") != std::string::npos);
}

TEST_CASE("memory that a limit refuses: the error has the limits with their values", "[fork]") {
  CHECK(memory_advice(EAGAIN).empty());
  CHECK(map_error("mapping", EACCES).message() == "mapping: Permission denied");
  int ends[2] = {-1, -1};
  REQUIRE(::pipe(ends) == 0);
  const UniqueFd reader(ends[0]);
  const UniqueFd writer(ends[1]);
  const int resource = GENERATE(RLIMIT_AS, RLIMIT_DATA);
  run_in_child(writer.get(), [&] {
    const rlimit limit{rlim_t{1} << 40, RLIM_INFINITY};
    if (::setrlimit(resource, &limit) != 0) ::_exit(1);
    const Status mapping = map_error("mapping", ENOMEM);
    const Status allocation = guarded([]() -> Status { throw std::bad_alloc(); });
    if (!mapping.is_exhaustion() || !allocation.is_exhaustion()) ::_exit(2);
    std::fprintf(stderr, "%s\n%s\n%s", mapping.message().c_str(), allocation.message().c_str(),
                 thread_advice(EAGAIN).c_str());
  });
  const std::string said = read_from(reader.get());
  INFO(said);
  const std::string value = resource == RLIMIT_AS ? "ulimit -v is 1073741824 KiB" : "ulimit -d is 1073741824 KiB";
  CHECK(said.find("mapping (memory limits: " + value) == 0);
  CHECK(said.find("vm.max_map_count is ") != std::string::npos);
  CHECK(said.find("out of memory (" + value) != std::string::npos);
  CHECK(said.find("for its stack: " + value) != std::string::npos);
}

}  // namespace tutti::internal
