// Calls of OpenSSL's libraries from any thread, also while the process exits.
//
// A process may exit while operations run whose threads authenticate to peers, and libcrypto's exit handler frees
// objects that this needs. So libcrypto is used under a lock, and not after this library's exit handler has run.
// Handlers run in reverse order: libcrypto's handler is registered at its first use, by the application or by
// instance(); this library's handler is registered after that, when this library is loaded.
//
// Threads: any.
#pragma once

#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/types.h>

#include <utility>

#include "base/status.h"
#include "os/fork.h"
#include "os/mutex.h"

namespace tutti::internal::net {

class Libcrypto {
 public:
  static Libcrypto& instance();
  // Calls `use` under the lock, and returns its result; kSystemError if the process exits.
  template <class Use>
  Status use(Use&& use) TUTTI_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    if (ended_) return {Code::kSystemError, "this process is exiting"};
    const bool has_errors = ::ERR_peek_error() != 0;
    Status status = std::forward<Use>(use)();
    // Otherwise libcrypto would free this thread's state when the thread ends, perhaps while the exit handler walks the
    // state of all threads without a lock. But errors that the application has not read yet are kept.
    if (!has_errors) ::OPENSSL_thread_stop();
    return status;
  }
  void end() TUTTI_EXCLUDES(mutex_);
  // A context of this library alone, which the exit handler does not free: what belongs to it may also be used outside
  // of use(), and later.
  [[nodiscard]] OSSL_LIB_CTX* context() const { return context_; }

 private:
  Libcrypto();

  OSSL_LIB_CTX* const context_;
  ForkMutex mutex_;
  bool ended_ TUTTI_GUARDED_BY(mutex_) = false;
};

}  // namespace tutti::internal::net
