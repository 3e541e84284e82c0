#include "observe/origin.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstddef>
#include <cstring>
#include <ctime>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>

#include "base/config.h"
#include "base/version.h"
#include "observe/tick_clock.h"
#include "os/kernel.h"
#include "os/kernel_files.h"

namespace tutti::internal::observe {
namespace {

template <std::size_t size>
void set_text(std::array<char, size>* to, std::string_view text) {
  const std::size_t length = std::min(size - 1, text.size());
  std::memcpy(to->data(), text.data(), length);
  (*to)[length] = '\0';
}

// Field 22 of /proc/PID/stat; 0: there is no such process.
std::uint64_t start_time_of(const std::string& pid) {
  const auto stat = stat_of(pid);
  if (!stat) return 0;
  std::istringstream fields(stat->fields);
  std::string skipped;
  for (int field = 3; field < 22; ++field) fields >> skipped;
  std::uint64_t time = 0;
  fields >> time;
  return time;
}

std::uint64_t own_pid_namespace() {
  struct stat info {};
  return ::stat("/proc/self/ns/pid", &info) == 0 ? info.st_ino : 0;
}

}  // namespace

int number_in_proc(int own) {
  if (own != ::getpid()) return own;  // of a simulated process
  std::array<char, 16> number{};
  const ssize_t length = ::readlink("/proc/self", number.data(), number.size() - 1);
  const auto found = length > 0 ? parse_integer(number.data(), 1, INT_MAX) : std::nullopt;
  return found ? static_cast<int>(*found) : own;
}

std::optional<ProcessStat> stat_of(const std::string& pid) {
  const std::string text = contents_of("/proc/" + pid + "/stat");  // "77 (name) S ..."
  const std::size_t open = text.find('(');
  const std::size_t close = text.rfind(')');
  if (open == std::string::npos || close == std::string::npos || close + 2 >= text.size()) return std::nullopt;
  return ProcessStat{text.substr(open + 1, close - open - 1), text.substr(close + 2)};
}

std::string machine_of(const Origin& origin) {
  return text_of(origin.host) + " " + text_of(origin.boot);
}

bool of_this_machine(const Origin& origin) {
  const std::string boot = text_of(origin.boot);
  return !boot.empty() && boot == first_line_of("/proc/sys/kernel/random/boot_id");
}

Life life_of(const Origin& origin) {
  if (!of_this_machine(origin)) return Life::kUnknown;
  if (origin.pid_namespace == 0 || origin.pid_namespace != own_pid_namespace()) return Life::kUnknown;
  // Its numbers are not those of the namespace.
  if (number_in_proc(::getpid()) != ::getpid()) return Life::kUnknown;
  const std::uint64_t start = start_time_of(std::to_string(origin.pid));
  return start != 0 && start == origin.start_time ? Life::kLives : Life::kEnded;
}

void set_origin(Origin* origin) {
  origin->pid = ::getpid();  // simulated processes are one process
  std::array<char, 256> host{};
  (void)os::kernel().gethostname(host.data(), host.size() - 1);
  set_text(&origin->host, host.data());
  set_text(&origin->version, library_version());
  set_text(&origin->program, ::program_invocation_short_name);
  set_text(&origin->boot, first_line_of("/proc/sys/kernel/random/boot_id"));
  origin->start_time = start_time_of("self");
  origin->pid_namespace = own_pid_namespace();
  const Moment moment = moment_now();
  origin->ticks = moment.ticks;
  origin->monotonic_ns = moment.ns;
  timespec now{};
  (void)::clock_gettime(CLOCK_REALTIME, &now);
  origin->realtime_ns = std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

}  // namespace tutti::internal::observe
