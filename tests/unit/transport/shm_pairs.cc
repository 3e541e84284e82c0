#include "shm_pairs.h"

#include <thread>
#include <utility>

#include "catch_compat.h"
#include "socket_pairs.h"
#include "transport/shm/link.h"

namespace tutti::internal::transport::conformance {
namespace {

struct WakeupFds {
  WakeupFd wakeup_fd_a = std::move(WakeupFd::create().value());
  WakeupFd wakeup_fd_b = std::move(WakeupFd::create().value());
};

std::pair<shm::LinkOptions, shm::LinkOptions> options_of(const WakeupFds& wakeup_fds, bool own_processor, bool far) {
  shm::LinkOptions a{1, own_processor, &wakeup_fds.wakeup_fd_a};
  shm::LinkOptions b{0, own_processor, &wakeup_fds.wakeup_fd_b};
  a.far = b.far = far;
  return {a, b};
}

}  // namespace

Pair threads_pair(bool own_processor, bool far) {
  auto wakeup_fds = std::make_shared<WakeupFds>();
  const auto [options_a, options_b] = options_of(*wakeup_fds, own_processor, far);
  auto segment = shm::Segment::create_private(shm::turns_of(options_a)).value();
  Pair pair;
  pair.a = shm::make_private_link(segment, 0, wakeup_fds->wakeup_fd_b.fd(), options_a);
  pair.b = shm::make_private_link(segment, 1, wakeup_fds->wakeup_fd_a.fd(), options_b);
  pair.wake_a = wakeup_fds->wakeup_fd_a.fd();
  pair.owner = wakeup_fds;
  return pair;
}

Pair processes_pair(bool own_processor, bool far) {
  auto wakeup_fds = std::make_shared<WakeupFds>();
  const auto [options_a, options_b] = options_of(*wakeup_fds, own_processor, far);
  auto [sockets_a, sockets_b] = connected(Family::kUnix, 1);
  Pair pair;
  std::thread other([&, options = options_b, socket = std::move(sockets_b[0])]() mutable {
    auto link = shm::make_link(std::move(socket), false, false, options, Deadline::after_ms(60'000));
    if (link.is_ok()) pair.b = std::move(*link);
  });
  auto link = shm::make_link(std::move(sockets_a[0]), true, false, options_a, Deadline::after_ms(60'000));
  other.join();
  REQUIRE(link.is_ok());
  REQUIRE(pair.b != nullptr);
  pair.a = std::move(*link);
  pair.wake_a = wakeup_fds->wakeup_fd_a.fd();
  pair.owner = wakeup_fds;
  return pair;
}

}  // namespace tutti::internal::transport::conformance
