// Reads and writes of one stream's socket, which never wait, and the errors of a stream.
//
// Threads: any; nothing here has state.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <string_view>

#include "base/status.h"

namespace tutti::internal::transport::tcp {

// Whether the call must be repeated later, as long as the connection lives.
bool is_temporary(int error_number);
// Writes the rest of a header and n bytes of payload: what send(2) returns.
ssize_t write_stream(int fd, const std::byte* head, std::size_t head_bytes, const std::byte* payload, std::size_t n);
// Up to n bytes to `destination`, then up to `more` bytes to `behind`: what recv(2) returns.
ssize_t read_stream(int fd, std::byte* destination, std::size_t n, std::byte* behind = nullptr, std::size_t more = 0);

// "tcp connection lost while sending: Broken pipe".
Status lost_while(int peer, std::string_view doing, int error_number);
Status closed_by(int peer);

}  // namespace tutti::internal::transport::tcp
