#include "verbs_pair.h"

#include <sys/socket.h>

#include <stdexcept>
#include <thread>

#include "base/config.h"

namespace tutti::internal::rdma_vm {

using namespace transport;

namespace {

void check(const Status& status) {
  if (!status.is_ok()) throw std::runtime_error(status.message());
}

}  // namespace

TwoRanks::TwoRanks() {
  auto options = verbs::parse_options(environment_variable("TUTTI_VERBS").value_or(""));
  check(options.status());
  options_ = *options;
  for (int side = 0; side < 2; ++side) {
    auto context = verbs::RdmaContext::open(options_, {});
    check(context.status());
    contexts_[side] = std::move(*context);
    sets_[side] = contexts_[side]->make_link_set();
  }
}

LinkPair TwoRanks::connect() {
  int fds[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0) throw std::runtime_error("socketpair");
  const auto connect = [&](int side) {
    const verbs::PeerPorts peer{1 - side,       contexts_[1 - side]->ports(), {side, 2}, {1 - side, 2},
                                options_.rails, options_.queue_pairs,         nullptr};
    return sets_[side]->connect(UniqueFd(fds[side]), side == 0, peer, Deadline::after_ms(30'000));
  };
  Result<std::unique_ptr<Link>> b = Status::internal("not connected");
  std::thread other([&] { b = connect(1); });
  auto a = connect(0);
  other.join();
  for (const auto* side : {&a, &b}) {
    if (!side->is_ok()) {
      throw std::runtime_error("side 0: " + a.status().message() + "; side 1: " + b.status().message());
    }
  }
  return {std::move(*a), std::move(*b)};
}

LinkPair connect_links() {
  return TwoRanks().connect();
}

}  // namespace tutti::internal::rdma_vm
