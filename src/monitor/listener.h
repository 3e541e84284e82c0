// Where a process listens for those that ask about it. All processes of a user can listen at the same address of one
// host; one of them gets each connection.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "net/address.h"
#include "net/socket.h"
#include "os/unique_fd.h"

namespace tutti::internal::monitor {

struct ListenAddress {
  std::string host;  // empty: a Unix socket
  std::uint16_t port = 0;
  std::string path;
};
// "10.0.0.1:28028", "[::1]:28028", "node7:28028", ":28028" (localhost), "unix:/run/user/1000/job.sock". kInvalidUsage:
// it has another form.
Result<ListenAddress> parse_listen_address(const std::string& text);
// What it means for both sides: localhost is both loopback addresses; other names are looked up, which may block.
Result<std::vector<net::Address>> addresses_of(const ListenAddress& address);

// Over TCP the kernel chooses among the processes that listen at the address. At a path one process listens, and the
// others try it: if it is gone, or does not answer, one of them takes its place. The path of another program stays.
//
// Threads: one at a time.
class Listener {
 public:
  // `greeting`: a line that a process at a path answers. kInvalidUsage: the text is not an address. kSystemError: the
  // process cannot listen there.
  static Result<Listener> open(const std::string& text, const std::string& greeting);
  Listener(Listener&&) noexcept = default;
  Listener& operator=(Listener&&) = delete;
  ~Listener() { close_sockets(); }

  // In a poll loop: prepare(set), set.wait(), accept(set).
  void prepare(net::PollSet* set);
  // The connections that have come, at most kMostAtOnce of each socket.
  std::vector<UniqueFd> accept(const net::PollSet& set);
  static constexpr int kMostAtOnce = 64;

 private:
  struct Socket {
    UniqueFd fd;
    std::size_t entry = 0;
    bool polled = false;
  };
  // A connection to the process that listens at the path.
  struct Trial {
    UniqueFd fd;
    std::int64_t until_ns = 0;
    std::size_t entry = 0;
    bool polled = false;
  };
  Listener() = default;
  Status listen_at(const std::vector<net::Address>& addresses);
  void add(UniqueFd fd);
  void close_sockets();
  // One step of getting or keeping the path.
  Status attend_path();
  Status begin_trial();
  Status end_trial();
  Status take_path();
  [[nodiscard]] bool has_path() const;

  std::string path_;  // empty: TCP
  std::string greeting_;
  std::vector<Socket> sockets_;
  ino_t inode_ = 0;  // of this process's file at the path
  Trial trial_;
  std::int64_t next_attempt_ns_ = 0;
  bool has_warned_ = false;
  std::int64_t paused_until_ns_ = 0;  // after a lack of descriptors or memory
};

}  // namespace tutti::internal::monitor
