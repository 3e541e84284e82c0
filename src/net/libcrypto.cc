#include "net/libcrypto.h"

#include "base/first_use.h"

namespace tutti::internal::net {
namespace {

struct AtExit {
  AtExit() { static_cast<void>(Libcrypto::instance()); }
  AtExit(const AtExit&) = delete;
  AtExit& operator=(const AtExit&) = delete;
  ~AtExit() { Libcrypto::instance().end(); }
};
[[maybe_unused]] const AtExit at_exit;

// Without any option it would return without registering its exit handler.
OSSL_LIB_CTX* make_context() {
  static_cast<void>(::OPENSSL_init_crypto(OPENSSL_INIT_LOAD_CRYPTO_STRINGS, nullptr));
  return ::OSSL_LIB_CTX_new();
}

}  // namespace

Libcrypto::Libcrypto() : context_(make_context()) {}

Libcrypto& Libcrypto::instance() {
  // Never destroyed: threads of the application may call until the process has ended.
  static constinit FirstUse<Libcrypto, Surplus::kKept> only;
  return only.get([] { return Libcrypto(); });
}

void Libcrypto::end() {
  const MutexLock lock(mutex_);
  ended_ = true;
}

}  // namespace tutti::internal::net
