// TLS records that the kernel makes (Documentation/networking/tls.rst of Linux): send(2) and recv(2) of the socket then
// take and give plain bytes.
//
// Threads: any.
#pragma once

#include "base/status.h"
#include "net/tls_records.h"

namespace tutti::internal::net {

// True: from now on the kernel encrypts and decrypts both directions of this connected TCP socket. False: it does not
// have TLS, and nothing has changed. Errors: it has only a part of it; the connection must be closed.
Result<bool> begin_kernel_tls(int socket, const TrafficSecrets& secrets);

}  // namespace tutti::internal::net
