// What a rank does without memory: a visit ends for want of it as well.
#include "bootstrap/listeners.h"

#include <cstdlib>
#include <new>
#include <optional>
#include <vector>

#include "catch_compat.h"

namespace {

thread_local bool refuses_memory = false;

}  // namespace

// Inlined, GCC would take them for a new and a delete that do not match.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  void* const found = refuses_memory ? nullptr : std::malloc(bytes != 0 ? bytes : 1);
  if (found == nullptr) throw std::bad_alloc();
  return found;
}
[[gnu::noinline]] void* operator new(std::size_t bytes, const std::nothrow_t& /*unused*/) noexcept {
  return refuses_memory ? nullptr : std::malloc(bytes != 0 ? bytes : 1);
}
[[gnu::noinline]] void operator delete(void* p) noexcept {
  std::free(p);
}
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept {
  std::free(p);
}

using namespace tutti::internal;

TEST_CASE("a visit that never came to look ends without memory") {
  Secret secret;
  secret.fill(7);
  Listeners listeners(secret, 1);
  // Mailboxes for connections that are shared are made when somebody looks for the first time.
  std::optional<Listeners::Visit> visit(std::in_place, listeners, std::vector<std::uint64_t>{Listeners::shared_by(0)});
  refuses_memory = true;
  visit.reset();
  refuses_memory = false;
  CHECK(listeners.take(Listeners::shared_by(0)).empty());
}
