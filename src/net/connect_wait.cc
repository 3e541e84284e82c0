#include "net/connect_wait.h"

#include <fmt/core.h>
#include <poll.h>

#include <climits>
#include <string>

#include "os/kernel.h"

namespace tutti::internal::net {

Status ConnectWait::poll(int fd, short events, int peer, std::string_view late) const {
  pollfd entry{fd, events, 0};
  const nfds_t entries = fd >= 0 ? 1 : 0;
  if (os::kernel().poll(&entry, entries, deadline_.left_ms(fd >= 0 ? kFailureCheckMs : 1)) > 0) return {};
  bool came = false;
  const auto hopeless = [&] {
    if (failure_ == nullptr || !failure_->any_departed() || !failure_->departed(peer)) return Status();
    // Data that it sent before its leave notice may have arrived just after the first poll.
    came = os::kernel().poll(&entry, entries, 0) > 0;
    return came ? Status() : Status::remote(fmt::format("rank {} has left", peer));
  };
  return go_on(hopeless, [&] { return came ? Status() : Status::timeout(std::string(late)); });
}

Status ConnectWait::tell() const {
  if (stalls_ == nullptr) return {};
  return stalls_->stalled((now_ns() - begin_ns_) / 1'000'000, deadline_.left_ms(INT_MAX), nullptr);
}

}  // namespace tutti::internal::net
