// Sealed messages.
#include "net/seal.h"

#include "catch_compat.h"

namespace tutti::internal::net {
namespace {

Secret secret_of(int seed) {
  Secret secret{};
  secret.fill(static_cast<std::uint8_t>(seed));
  return secret;
}

}  // namespace

TEST_CASE("seal: a sealed message comes out as it went in") {
  for (const std::size_t length : {0, 1, 16, 128, 1000}) {
    const std::string message(length, 'm');
    auto sealed = seal(secret_of(1), message);
    REQUIRE(sealed.is_ok());
    CHECK(sealed->size() == length + kSealBytes);
    auto opened = unseal(secret_of(1), *sealed);
    REQUIRE(opened.is_ok());
    CHECK(*opened == message);
  }
}

TEST_CASE("seal: nothing of the message can be read, and two are never equal") {
  const std::string message = "the secret of another job, of 40 letters";
  auto first = seal(secret_of(1), message);
  auto second = seal(secret_of(1), message);
  REQUIRE(first.is_ok());
  REQUIRE(second.is_ok());
  CHECK(*first != *second);
  CHECK(first->find(message.substr(0, 4)) == std::string::npos);
}

TEST_CASE("seal: a damaged message, and one with another secret, is refused") {
  auto sealed = seal(secret_of(1), "an id");
  REQUIRE(sealed.is_ok());
  CHECK(unseal(secret_of(2), *sealed).status().code() == Code::kRemoteError);
  for (std::size_t length = 0; length < sealed->size(); ++length) {
    CHECK(unseal(secret_of(1), sealed->substr(0, length)).status().code() == Code::kRemoteError);
  }
  for (std::size_t at = 0; at < sealed->size(); ++at) {
    std::string damaged = *sealed;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    CHECK(unseal(secret_of(1), damaged).status().code() == Code::kRemoteError);
  }
}

}  // namespace tutti::internal::net
