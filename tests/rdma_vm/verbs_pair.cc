#include "verbs_pair.h"

#include <sys/socket.h>

#include <stdexcept>
#include <thread>

#include "base/config.h"

namespace tutti::internal::rdma_vm {

using namespace transport;

LinkPair connect_links() {
  const auto check = [](const Status& status) {
    if (!status.is_ok()) throw std::runtime_error(status.message());
  };
  auto options = verbs::parse_options(environment_variable("TUTTI_VERBS").value_or(""));
  check(options.status());
  int fds[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0) throw std::runtime_error("socketpair");
  auto left = verbs::RdmaContext::open(*options, {});
  check(left.status());
  auto right = verbs::RdmaContext::open(*options, {});
  check(right.status());
  const auto connect = [&](int side, verbs::RdmaContext& own, const verbs::RdmaContext& other) {
    const verbs::PeerPorts peer{1 - side,       other.ports(),        {side, 2}, {1 - side, 2},
                                options->rails, options->queue_pairs, nullptr};
    return own.make_link_set()->connect(UniqueFd(fds[side]), side == 0, peer, Deadline::after_ms(30'000));
  };
  Result<std::unique_ptr<Link>> b = Status::internal("not connected");
  std::thread other([&] { b = connect(1, **right, **left); });
  auto a = connect(0, **left, **right);
  other.join();
  for (const auto* side : {&a, &b}) {
    if (!side->is_ok()) {
      throw std::runtime_error("side 0: " + a.status().message() + "; side 1: " + b.status().message());
    }
  }
  return {std::move(*a), std::move(*b)};
}

}  // namespace tutti::internal::rdma_vm
