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
#include "os/clock.h"
#include "os/unique_fd.h"

namespace tutti::internal::net {

// Listens on every interface, IPv4 and IPv6 (IPv4 only where there is no IPv6), on the first free port
// of [port_low, port_high]; both 0: any port. kSystemError if none is free. `setting`: where the user chooses these
// ports, for messages.
Result<UniqueFd> listen_tcp(int port_low, int port_high, const char* setting = "TUTTI_PORT_RANGE=low-high");
// Listens on a Unix address. A socket by path gets mode 0600; the caller removes the file.
Result<UniqueFd> listen_unix(const Address& address);
// Removes the file of a socket if the path, which a peer may have named, leads to one of this process's user.
void remove_own_socket(const std::string& path);

// The address that a socket is bound to. Here and below IPv4 is IPv4, also where the listener serves IPv6 as well.
Result<Address> local_address(int fd);

// The address of what a socket is connected to.
Result<Address> peer_address(int fd);

// One waiting connection, or an invalid fd if there is none (or the one that was there has gone).
Result<UniqueFd> accept_one(int listener);

// Begins to connect; poll for POLLOUT, then ask connect_result(). kInProgress: the listener's queue
// is full (Unix sockets only), begin again a little later. kRemoteError: nobody listens there. kTimeout: the network
// does not lead there, which may pass. kSystemError: the system refuses this process a call, or it lacks something
// (is_exhaustion()).
Result<UniqueFd> start_connect(const Address& address);
// kInProgress while connecting, ok when connected; errors as above.
Status connect_result(int fd);

// Whether that call must be tried again later.
bool would_block(int error_number);
// For messages, after the name of a call: what may refuse it to this process. Empty for errors that are not refusals.
std::string refusal_advice(int error_number);

// TCP sockets: no delay for small messages. Harmless on Unix sockets.
void set_no_delay(int fd);
// TCP sockets: the kernel asks an idle peer now and then, so that is_silent() can tell, and never ends the connection
// by itself. Its own limits end connections of peers that are alive: TCP_USER_TIMEOUT if a peer acknowledges but does
// not read, keepalive and the limit of retransmissions after a time that has nothing to do with the user's timeout.
// The price: if the process is killed while the peer's host is gone, the kernel keeps a socket with unsent bytes for 12
// days (docs/operating.md). It ignores tcp_orphan_retries where TCP_USER_TIMEOUT is set.
void watch_silence(int fd, std::int64_t limit_ms);
// Before one is closed while its last bytes may be on their way: the kernel gives up such bytes when it has waited for
// an acknowledgement, or for room, as long as it ever does between two tries.
void end_silence_watch(int fd);
// Immediately before a watched socket is closed: the kernel gives up what is not acknowledged after an hour. Otherwise
// it keeps the closed socket for 12 days if the peer's host is gone. Not earlier: a peer that is stopped may read late.
void limit_lost_bytes(int fd);
// TCP sockets, after watch_silence(): whether the peer's kernel has acknowledged nothing for `limit_ms`, although it
// was asked several times. A stopped process, or one that does not read, is not silent: its kernel acknowledges.
bool is_silent(int fd, std::int64_t limit_ms);
// How often is_silent() is worth a system call.
inline constexpr std::int64_t silence_look_ms(std::int64_t limit_ms) {
  return std::clamp<std::int64_t>(limit_ms / 20, 50, 60'000);
}
// TCP sockets whose peer is on this machine: no pacing. Congestion controls that pace (BBR) measure a bandwidth
// where there is none, and halve the throughput of bursts at times. Others keep what the system has chosen.
void set_unpaced_if_local(int fd);

// What one thread waits for: descriptors, and the time at which someone wants to act.
class PollSet {
 public:
  void clear(int max_wait_ms) {
    entries_.clear();
    timeout_ms_ = max_wait_ms;
  }
  std::size_t add(int fd, short events) {
    entries_.push_back({fd, events, 0});
    return entries_.size() - 1;
  }
  // Someone wants to act at `when`.
  void wake_at(const Deadline& when) { timeout_ms_ = std::min(timeout_ms_, when.left_ms(timeout_ms_)); }
  Status wait();
  // Valid after wait(): the events of the entry that add() numbered.
  [[nodiscard]] short ready(std::size_t entry) const { return entries_[entry].revents; }

 private:
  std::vector<pollfd> entries_;
  int timeout_ms_ = 0;
};

// The whole of `bytes`, waiting until the deadline. kRemoteError if the peer closes, kTimeout at the deadline.
Status send_all(int socket, std::span<const std::byte> bytes, Deadline deadline);

}  // namespace tutti::internal::net
