#include "transport/tcp/stream_errors.h"

#include <fmt/core.h>

#include <cerrno>
#include <system_error>

namespace tutti::internal::transport::tcp {

bool is_temporary(int error_number) {
  return error_number == EAGAIN || error_number == EWOULDBLOCK || error_number == EINTR || error_number == ENOBUFS;
}

Status lost_while(int peer, std::string_view doing, int error_number) {
  const std::string why = error_number == EBADMSG ? "an encrypted message was damaged or forged"
                                                  : std::system_category().message(error_number);
  return Status::remote(fmt::format("rank {}: tcp connection lost while {}: {}", peer, doing, why));
}

Status closed_by(int peer) {
  return Status::remote(fmt::format("rank {}: tcp connection closed by the peer", peer));
}

}  // namespace tutti::internal::transport::tcp
