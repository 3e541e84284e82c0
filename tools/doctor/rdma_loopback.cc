#include "rdma_loopback.h"

#include <fmt/core.h>
#include <sys/socket.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "os/unique_fd.h"
#include "topology/detect.h"
#include "transport/verbs/rdma_context.h"

namespace tutti::internal::tools {
namespace {

using namespace transport;

constexpr Fingerprint kPrint{1, 2, 3};

// State that the two threads share. Neither returns before both are done or one has failed, because a thread must
// progress its link while the peer may need it.
struct Shared {
  std::atomic<int> done = 0;
  std::atomic<bool> failed = false;
};

// One end: its RDMA context and link, and what it has sent and received.
class Side {
 public:
  Side(int rank, std::size_t bytes) : rank_(rank), sent_(bytes), received_(bytes) {
    std::uint32_t state = static_cast<std::uint32_t>(rank) + 1;
    for (std::byte& byte : sent_) {
      state = state * 1664525U + 1013904223U;
      byte = static_cast<std::byte>(state >> 24);
    }
  }

  Status open(const verbs::Options& options) {
    Result<std::shared_ptr<verbs::RdmaContext>> rdma_context = verbs::RdmaContext::open(options, topology::far_nodes());
    if (!rdma_context.is_ok()) return rdma_context.status();
    rdma_context_ = std::move(*rdma_context);
    queue_pairs_ = options.queue_pairs;
    return {};
  }
  Status connect(UniqueFd socket, const Side& other, Deadline deadline) {
    verbs::PeerPorts peer;
    peer.peer = other.rank_;
    peer.ports = other.rdma_context_->ports();
    peer.rails = 1;
    peer.queue_pairs = queue_pairs_;
    Result<std::unique_ptr<Link>> link =
        rdma_context_->make_link_set()->connect(std::move(socket), rank_ == 0, peer, deadline);
    if (!link.is_ok()) return link.status();
    link_ = std::move(*link);
    return {};
  }
  // Sends all and receives all, and stays until the other has done the same.
  Status exchange(Shared* shared, Deadline deadline) {
    link_->begin_operation({});
    Status status = transfer(shared, deadline);
    if (!status.is_ok()) shared->failed = true;
    return status;
  }
  [[nodiscard]] bool received(const Side& other) const { return received_ == other.sent_; }

 private:
  Status transfer(Shared* shared, Deadline deadline);
  void step();
  [[nodiscard]] bool finished() {
    return pushed_ == sent_.size() && got_ == received_.size() && link_->send().completed() == pushed_ &&
           link_->flushed();
  }

  const int rank_;
  std::vector<std::byte> sent_;
  std::vector<std::byte> received_;
  std::size_t pushed_ = 0;
  std::size_t got_ = 0;
  int queue_pairs_ = 1;
  std::shared_ptr<verbs::RdmaContext> rdma_context_;
  std::unique_ptr<Link> link_;  // goes before the context
};

void Side::step() {
  SendLane& send = link_->send();
  if (pushed_ < sent_.size()) {
    pushed_ += send.push(kPrint, {sent_.data(), sent_.size(), 0, 0}, pushed_, sent_.size() - pushed_);
  }
  send.progress();
  if (got_ == received_.size()) return;
  RecvLane& recv = link_->recv();
  const RecvLane::View view = recv.peek(received_.size() - got_);
  if (view.size == 0) return;
  std::memcpy(received_.data() + got_, view.data, view.size);
  if (recv.consume(view.size)) got_ += view.size;
}

Status Side::transfer(Shared* shared, Deadline deadline) {
  for (bool counted = false; shared->done < 2;) {
    step();
    if (!counted && finished()) {
      ++shared->done;
      counted = true;
    }
    if (Status s = link_->send().status(); !s.is_ok()) return s;
    if (Status s = link_->recv().status(); !s.is_ok()) return s;
    if (shared->failed) return {};
    if (deadline.passed()) {
      return Status::timeout(fmt::format("{} bytes have arrived and {} were sent when the time was up", got_, pushed_));
    }
    std::this_thread::yield();
  }
  return {};
}

// Runs `work` for both sides at the same time, each in a thread. Returns the error that explains most.
template <class Work>
Status at_once(Work&& work) {
  Status first;
  Status second;
  std::thread other([&] { second = guarded([&] { return work(1); }); });
  first = guarded([&] { return work(0); });
  other.join();
  // A side that only saw the connection break knows less than the other side.
  const bool prefer_second = first.is_ok() || (first.code() == Code::kRemoteError && !second.is_ok());
  return prefer_second ? second : first;
}

}  // namespace

Result<Loopback> run_loopback(const verbs::Options& options, std::size_t bytes, Deadline deadline) {
  Side sides[2] = {Side(0, bytes), Side(1, bytes)};
  for (Side& side : sides) {
    if (Status s = side.open(options); !s.is_ok()) return s;
  }
  int fds[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) != 0) {
    return Status::system("socketpair", errno);
  }
  UniqueFd sockets[2] = {UniqueFd(fds[0]), UniqueFd(fds[1])};
  Loopback loopback;
  std::int64_t start = now_ns();
  Status status = at_once([&](int i) { return sides[i].connect(std::move(sockets[i]), sides[1 - i], deadline); });
  if (!status.is_ok()) return status.with_context("connecting");
  loopback.connect_ms = static_cast<double>(now_ns() - start) / 1e6;
  start = now_ns();
  Shared shared;
  status = at_once([&](int i) { return sides[i].exchange(&shared, deadline); });
  if (!status.is_ok()) return status.with_context("sending");
  loopback.transfer_ms = static_cast<double>(now_ns() - start) / 1e6;
  if (!sides[0].received(sides[1]) || !sides[1].received(sides[0])) {
    return Status::internal("other bytes arrived than were sent");
  }
  return loopback;
}

}  // namespace tutti::internal::tools
