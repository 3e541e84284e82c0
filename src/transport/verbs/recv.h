// The receiving lane of the verbs transport.
//
// Threads: as the link (transport.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "memory/registration.h"
#include "transport/transport.h"
#include "transport/verbs/connection.h"

namespace tutti::internal::transport::verbs {

// Shorter buffers are not worth the message that advertises them.
inline constexpr std::size_t kAdvertiseBytes = 16 * 1024;

class VerbsRecv final : public RecvLane {
 public:
  VerbsRecv(Connection& connection, memory::RegistrationUser& registrations, const LaneTraits& traits)
      : connection_(connection), registrations_(registrations) {
    traits_ = traits;
  }

  View peek(std::size_t want) override;
  bool consume(std::size_t n) override;
  // A view is the slot itself or already the destination, so pull() cannot save a copy.
  std::size_t pull(std::byte*, std::size_t, Fingerprint*) override { return 0; }
  void advertise(std::uint64_t position, const Source& target, std::size_t offset, std::size_t n) override;
  Status status() override { return broken_.is_ok() ? connection_.check(true) : broken_; }

 private:
  struct Advertised {
    std::uint64_t position = 0;
    std::uint64_t bytes = 0;
    std::byte* address = nullptr;
  };
  // The position of the direct put at the head; null if it was never advertised.
  [[nodiscard]] const std::byte* find_advertised(std::size_t length);

  Connection& connection_;
  memory::RegistrationUser& registrations_;
  MessageHeader header_;  // of the message at the head
  std::size_t used_ = 0;  // bytes of it that are consumed
  std::array<Advertised, kAdvertisements> advertised_{};
  std::uint32_t advertised_begin_ = 0;
  std::uint32_t advertised_end_ = 0;
  Status broken_;
};

}  // namespace tutti::internal::transport::verbs
