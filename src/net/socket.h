// Sockets, all of them non-blocking and close-on-exec.
#pragma once

#include <poll.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "net/address.h"
#include "net/byte_stream.h"
#include "os/clock.h"
#include "os/unique_fd.h"

namespace tutti::internal::net {

// Listens on every interface, IPv4 and IPv6 (IPv4 only if IPv6 is missing), on the first free port of [port_low,
// port_high]; both 0: any port. kSystemError if none is free. `setting`: the setting that chooses these ports, for
// messages.
Result<UniqueFd> listen_tcp(int port_low, int port_high, const char* setting = "TUTTI_PORT_RANGE=low-high");
// Listens on a Unix address. A socket by path gets mode 0600; the caller removes the file.
Result<UniqueFd> listen_unix(const Address& address);
// Removes the file of a socket if the path, which a peer may have named, belongs to this process's user.
void remove_own_socket(const std::string& path);

// The address to which a socket is bound. Here and below, IPv4 addresses are returned as IPv4, also for a listener of
// both families.
Result<Address> local_address(int fd);

// The address of the peer of a connected socket.
Result<Address> peer_address(int fd);

// One waiting connection, or an invalid fd if there is none (or if it has been closed).
Result<UniqueFd> accept_one(int listener);

// Begins to connect; poll for POLLOUT, then ask connect_result(). kInProgress: the listener's queue is full (Unix
// sockets only), try again a little later. kRemoteError: no process listens there. kTimeout: there is no route, perhaps
// temporarily. kSystemError: the system refuses this process a call, or there is a shortage (is_exhaustion()).
Result<UniqueFd> start_connect(const Address& address);
// kInProgress while connecting, ok when connected; errors as above.
Status connect_result(int fd);

// Whether that call must be tried again later.
bool would_block(int error_number);
// For messages, after the name of a call: mechanisms that may refuse it. Empty for errors that are not refusals.
std::string refusal_advice(int error_number);

// TCP sockets: no delay for small messages. Harmless on Unix sockets.
void set_no_delay(int fd);
// TCP sockets: makes the kernel probe an idle peer regularly, for is_silent(), and never end the connection by itself.
// The kernel's own limits would end connections of living peers: TCP_USER_TIMEOUT if a peer acknowledges but does not
// read; keepalive and the limit of retransmissions after times that do not depend on the user's timeout. The cost: if
// the process is killed while the peer's host has failed, the kernel keeps a socket with unsent bytes for 12 days
// (docs/operating.md). It ignores tcp_orphan_retries if TCP_USER_TIMEOUT is set.
void watch_silence(int fd, std::int64_t limit_ms);
// Call it before closing a socket whose last bytes may be in flight: the kernel discards them after it has waited for
// an acknowledgement, or for room, for its longest interval between two retries.
void end_silence_watch(int fd);
// Call it immediately before closing a watched socket: the kernel discards unacknowledged bytes after an hour.
// Otherwise it keeps the closed socket for 12 days if the peer's host has failed. Not earlier: a stopped peer may read
// late.
void limit_lost_bytes(int fd);
// TCP sockets, after watch_silence(): whether the peer's kernel has acknowledged nothing for `limit_ms`, although it
// was probed several times. A stopped process, or one that does not read, is not silent: its kernel acknowledges.
bool is_silent(int fd, std::int64_t limit_ms);
// The interval at which to call is_silent(), which is a system call.
inline constexpr std::int64_t silence_look_ms(std::int64_t limit_ms) {
  return std::clamp<std::int64_t>(limit_ms / 20, 50, 60'000);
}
// TCP sockets whose peer is on this machine: no pacing. Congestion controls that pace (BBR) measure a bandwidth
// although there is no bottleneck, and sometimes halve the throughput of bursts. Other sockets keep the system's
// choice.
void set_unpaced_if_local(int fd);

// The wait of one thread: descriptors, and the earliest time at which something must be done.
class PollSet {
 public:
  void clear(int max_wait_ms) {
    entries_.clear();
    held_.clear();
    timeout_ms_ = max_wait_ms;
  }
  std::size_t add(int fd, short events) {
    entries_.push_back({fd, events, 0});
    return entries_.size() - 1;
  }
  // Bytes that the stream holds count as POLLIN.
  std::size_t add(const ByteStream& stream, short events) {
    const bool holds = (events & POLLIN) != 0 && stream.holds();
    const std::size_t entry = add(stream.get(), events);
    if (holds) held_.push_back(entry);
    return entry;
  }
  // The wait ends at `when` at the latest.
  void wake_at(const Deadline& when) { timeout_ms_ = std::min(timeout_ms_, when.left_ms(timeout_ms_)); }
  Status wait();
  // Valid after wait(): the events of the entry that add() numbered.
  [[nodiscard]] short ready(std::size_t entry) const { return entries_[entry].revents; }

 private:
  std::vector<pollfd> entries_;
  std::vector<std::size_t> held_;  // entries of streams that hold bytes
  int timeout_ms_ = 0;
};

// Sends all of `bytes`, waiting until the deadline. kRemoteError if the peer closes, kTimeout at the deadline.
Status send_all(int socket, std::span<const std::byte> bytes, Deadline deadline);

}  // namespace tutti::internal::net
