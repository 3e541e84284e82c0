// One fixed-size message with at most one descriptor over a non-blocking Unix SOCK_STREAM socket. Messages are small
// (well below the socket buffer), so each is written and read completely or not at all.
//
// Threads: one at a time per socket.
#pragma once

#include <sys/types.h>

#include <cstddef>

#include "base/status.h"
#include "os/unique_fd.h"

namespace tutti::internal::transport::shm {

// fd < 0: no descriptor. Returns 0 or errno.
int send_with_fd(int socket, const void* message, std::size_t bytes, int fd);
// Whether such an errno means that the socket, or the kernel, accepts no more at present.
bool is_full(int error_number);
// Whether the system lets this process pass a descriptor to another one.
Status try_passing(int fd);
// Like recv(2): the bytes read, 0 at the end, -1 with errno. *fd is set if a descriptor came with the message.
ssize_t receive_with_fd(int socket, void* message, std::size_t bytes, UniqueFd* fd);

}  // namespace tutti::internal::transport::shm
