// Default verbs for features that a transport does not have. Not for decorators.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "transport/transport.h"

namespace tutti::internal::transport {

// Writes nothing to advertised buffers, and sends at once everything that it takes.
class PlainSendLane : public SendLane {
 public:
  std::span<std::byte> reserve_remote(std::size_t) override { return {}; }
  void progress() override {}
};

// Makes no use of advertisements.
class PlainRecvLane : public RecvLane {
 public:
  void advertise(std::uint64_t, const Source&, std::size_t, std::size_t) override {}
};

// Has delivered everything that it has taken, sends no leave notice, and does not use zero copy.
class PlainLink : public Link {
 public:
  [[nodiscard]] bool sent() override { return true; }
  [[nodiscard]] std::uint64_t reconnects() const override { return 0; }
  void end_sending() noexcept override {}
  [[nodiscard]] bool flushed() override { return true; }
  void send_leave_notice() override {}
  void begin_operation(MemoryUse) override {}
  void revoke() noexcept override {}
  [[nodiscard]] bool revoked() noexcept override { return true; }
};

}  // namespace tutti::internal::transport
