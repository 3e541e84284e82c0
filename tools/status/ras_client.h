// A client of NCCL's RAS protocol, version 2: asks one process of a job for its status.
//
// Threads: one.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "net/address.h"
#include "os/clock.h"
#include "os/unique_fd.h"

namespace tutti::internal::tools {

class RasClient {
 public:
  // Greets processes that listen at one of these addresses, until one answers. A connection may get to a process that
  // is stopped or busy, so that soon another one begins beside it. kRemoteError: no process of a job listens there;
  // kTimeout: none has answered by `deadline`.
  static Result<RasClient> greet(const std::vector<net::Address>& addresses, Deadline deadline);

  // Sends the line, and waits for the answer. kRemoteError: it is an error, or the connection has ended.
  Status command(const std::string& line, const std::string& expected, Deadline deadline);
  // Sends the line, and calls take() with what comes until the connection ends. It ends as well if take() returns
  // false.
  using Take = std::function<bool(std::string_view)>;
  Status listen(const std::string& line, Deadline deadline, const Take& take);
  // Calls take() with what comes, without end.
  Status follow(const Take& take);

 private:
  class Greeting;
  explicit RasClient(UniqueFd fd) : fd_(std::move(fd)) {}
  Status send(const std::string& line, Deadline deadline);
  // Appends what comes to heard_; *over: the connection has ended.
  Status receive(Deadline deadline, bool* over);

  UniqueFd fd_;
  std::string heard_;
};

}  // namespace tutti::internal::tools
