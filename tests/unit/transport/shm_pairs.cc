#include "shm_pairs.h"

#include <utility>

#include "catch_compat.h"
#include "socket_pairs.h"
#include "transport/shm/private_memory.h"

namespace tutti::internal::transport::conformance {
namespace {

std::pair<shm::LinkOptions, shm::LinkOptions> options_of(bool own_processor, bool far) {
  shm::LinkOptions a{1, own_processor};
  shm::LinkOptions b{0, own_processor};
  a.far = b.far = far;
  return {a, b};
}

}  // namespace

Pair threads_pair(bool own_processor, bool far) {
  auto wakeup_fds = std::make_shared<std::pair<WakeupFd, WakeupFd>>(std::move(WakeupFd::create().value()),
                                                                    std::move(WakeupFd::create().value()));
  const auto [options_a, options_b] = options_of(own_processor, far);
  auto segment = shm::PrivateSegment::create(shm::turns_of(options_a)).value();
  Pair pair;
  pair.a = shm::make_private_link(segment->link_memory(0), wakeup_fds->second.fd(), options_a);
  pair.b = shm::make_private_link(segment->link_memory(1), wakeup_fds->first.fd(), options_b);
  pair.wake_a = wakeup_fds->first.fd();
  pair.owner = wakeup_fds;
  return pair;
}

SharedEnds::SharedEnds(int node_of_b) {
  auto [sockets_a, sockets_b] = connected(Family::kUnix, 1);
  a = shm::Pair::create(sockets_a[0].release(), wakeup_fd_a, 1, {0, shm::Placing::kFirst}).value();
  b = shm::Pair::create(sockets_b[0].release(), wakeup_fd_b, 0, {1, shm::Placing::kSecond, node_of_b}).value();
}

std::pair<std::unique_ptr<shm::PairLinkMemory>, std::unique_ptr<shm::PairLinkMemory>> SharedEnds::open(
    std::uint64_t id, shm::Turns turns) const {
  auto side_a = std::move(a->open(id, turns).value());
  auto side_b = std::move(b->open(id, turns).value());
  REQUIRE(side_a->connect().value());
  REQUIRE(side_b->connect().value());
  return {std::move(side_a), std::move(side_b)};
}

Pair processes_pair(bool own_processor, bool far) {
  auto ends = std::make_shared<SharedEnds>();
  const auto [options_a, options_b] = options_of(own_processor, far);
  auto [memory_a, memory_b] = ends->open(1, shm::turns_of(options_a));
  Pair pair;
  pair.a = shm::make_link(std::move(memory_a), false, options_a);
  pair.b = shm::make_link(std::move(memory_b), false, options_b);
  pair.wake_a = ends->wakeup_fd_a.fd();
  pair.owner = ends;
  return pair;
}

}  // namespace tutti::internal::transport::conformance
