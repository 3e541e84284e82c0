// The sending lane of the verbs transport.
//
// Threads: as the link (transport.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "memory/registration.h"
#include "transport/plain.h"
#include "transport/transport.h"
#include "transport/verbs/connection.h"

namespace tutti::internal::transport::verbs {

// From this size on, the device reads user memory directly, if it can be registered; below, a copy costs less than
// tracking the memory.
inline constexpr std::size_t kZcopyBytes = 16 * 1024;
// Shorter pieces go through a slot even if the receiver has advertised a buffer: that saves a work request.
inline constexpr std::size_t kDirectPutBytes = 8 * 1024;
// The longest direct put. Over soft-RoCE a stream of 1 MiB messages reaches 0.96 of ib_write_bw, and 0.93 if cut to 256
// KiB.
inline constexpr std::size_t kMostDirectPutBytes = 1024 * 1024;

class VerbsSend final : public PlainSendLane {
 public:
  VerbsSend(Connection& connection, memory::RegistrationUser& registrations, const LaneTraits& traits)
      : connection_(connection), registrations_(registrations) {
    traits_ = traits;
  }

  std::size_t push(const Fingerprint& fingerprint, const Source& source, std::size_t offset, std::size_t n) override;
  std::span<std::byte> reserve(std::size_t n) override;
  void commit(const Fingerprint& fingerprint, std::size_t n) override;
  std::uint64_t completed() override;
  void progress() override { connection_.poll(); }
  Status status() override { return connection_.check(false); }

 private:
  // Called before the next message takes its slot: the previous message there has been read and is no longer counted.
  // REQUIRES: Connection::may_send().
  void forget_slot();
  void sent(std::size_t n, bool zcopy);

  Connection& connection_;
  memory::RegistrationUser& registrations_;
  // By outbox slot: the position in the stream of a message from user memory.
  std::array<std::uint64_t, kSlots> zcopy_begin_{};
  std::array<bool, kSlots> is_zcopy_{};
  std::uint32_t zcopies_ = 0;
  std::uint32_t oldest_ = 0;  // no message before this one is sent by zero copy
};

}  // namespace tutti::internal::transport::verbs
