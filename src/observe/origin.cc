#include "observe/origin.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <ctime>
#include <string_view>

#include "base/version.h"
#include "os/clock.h"
#include "os/kernel.h"
#include "os/ticks.h"

namespace tutti::internal::observe {
namespace {

template <std::size_t size>
void set_text(std::array<char, size>* to, std::string_view text) {
  const std::size_t length = std::min(size - 1, text.size());
  std::memcpy(to->data(), text.data(), length);
  (*to)[length] = '\0';
}

}  // namespace

void set_origin(Origin* origin) {
  origin->pid = ::getpid();  // simulated processes are one process
  std::array<char, 256> host{};
  (void)os::kernel().gethostname(host.data(), host.size() - 1);
  set_text(&origin->host, host.data());
  set_text(&origin->version, library_version());
  set_text(&origin->program, ::program_invocation_short_name);
  origin->ticks = ticks();
  origin->monotonic_ns = now_ns();
  timespec now{};
  (void)::clock_gettime(CLOCK_REALTIME, &now);
  origin->realtime_ns = std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

}  // namespace tutti::internal::observe
