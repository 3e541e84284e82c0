#include "base/descriptors.h"

#include <fmt/core.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <cerrno>

#include "base/first_use.h"
#include "base/log.h"
#include "base/status.h"
#include "os/fork.h"
#include "os/mutex.h"

namespace tutti::internal {
namespace {

struct Reserved {
  ForkMutex mutex;
  rlim_t own TUTTI_GUARDED_BY(mutex) = 0;  // the soft limit as tutti found it: the program's share
  // Written under the lock and read without it: error texts are made anywhere, also while another lock is held, or
  // while a fork holds all locks.
  std::atomic<rlim_t> count{0};
  bool told TUTTI_GUARDED_BY(mutex) = false;
};

// Never destroyed: reservations may live as long as the process.
Reserved& reserved() {
  static constinit FirstUse<Reserved, Surplus::kKept> instance;
  return instance.get();
}
[[maybe_unused]] const Reserved& made_at_load = reserved();

std::string limit_text(rlim_t limit) {
  return limit == RLIM_INFINITY ? "unlimited" : std::to_string(limit);
}

}  // namespace

DescriptorReservation::DescriptorReservation(std::size_t count) : count_(count) {
  Reserved& all = reserved();
  const MutexLock lock(all.mutex);
  const rlim_t needed = all.count += count;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  if (all.own == 0) all.own = limit.rlim_cur;
  const rlim_t wanted = all.own > RLIM_INFINITY - needed ? RLIM_INFINITY : all.own + needed;
  if (limit.rlim_cur >= wanted) return;
  limit.rlim_cur = std::min(wanted, limit.rlim_max);
  // A missing descriptor is an error only when it is needed; perhaps none will be missing.
  if (::setrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur == wanted) return;
  if (!std::exchange(all.told, true)) {
    // The count remains valid, even if there is no memory for this message.
    const rlim_t own = all.own;
    (void)guarded([&] {
      log::debug(fmt::format(
          "communicators may need {} descriptors beyond the program's own limit of {}; the hard limit is {}", needed,
          limit_text(own), limit_text(limit.rlim_max)));
      return Status();
    });
  }
}

DescriptorReservation::~DescriptorReservation() {
  if (count_ == 0) return;
  const MutexLock lock(reserved().mutex);
  reserved().count -= count_;
}

bool means_exhaustion(int error_number) {
  return error_number == EMFILE || error_number == ENFILE || error_number == ENOMEM || error_number == ENOBUFS;
}

std::string descriptor_advice(int error_number) {
  if (error_number == ENFILE) {
    return " (the limit of the whole machine, sysctl fs.file-max; or of the container's runtime)";
  }
  rlimit limit{};
  if (error_number != EMFILE || ::getrlimit(RLIMIT_NOFILE, &limit) != 0) return {};
  const rlim_t needed = reserved().count;
  const std::string need =
      needed == 0 ? std::string() : fmt::format(", of which its communicators may need {}", needed);
  return fmt::format(
      " (this process may open {}{}; RLIMIT_NOFILE, hard limit {}: raise it by ulimit -n, LimitNOFILE= of a systemd "
      "unit or --ulimit nofile= of a container)",
      limit_text(limit.rlim_cur), need, limit_text(limit.rlim_max));
}

}  // namespace tutti::internal
