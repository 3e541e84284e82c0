// The costs of messages between two ranks. Each transport publishes its costs (costs.h in its folder), or `tutti tune`
// fits them to measurements; the simulator uses them.
#pragma once

#include <array>

namespace tutti::internal {

// Linear between powers of two; the same on all machines.
double log2_by_parts(double number);

// The cost of a byte by the size of its vector: given at some sizes, linear in the logarithm in between, constant
// beyond (in the manner of PLogP, whose functions are of the message's size: Kielmann, Bal, Verstoep: Fast measurement
// of LogP parameters for message passing platforms, IPDPS 2000 Workshops).
class PerByte {
 public:
  static constexpr int kSizes = 4;
  static constexpr std::array<double, kSizes> kBytes = {1 << 10, 1 << 15, 1 << 20, 1 << 25};

  constexpr PerByte(double us_per_byte = 0) { us_per_byte_.fill(us_per_byte); }
  constexpr explicit PerByte(const std::array<double, kSizes>& us_per_byte) : us_per_byte_(us_per_byte) {}
  [[nodiscard]] double at(double bytes) const;
  [[nodiscard]] const std::array<double, kSizes>& values() const { return us_per_byte_; }
  [[nodiscard]] std::array<double, kSizes>& values() { return us_per_byte_; }
  bool operator==(const PerByte&) const = default;

 private:
  std::array<double, kSizes> us_per_byte_{};
};

// The costs of messages of one kind, without links.
struct MessageCosts {
  double latency_us = 0;
  double message_us = 0;        // of each side's processor, for a message
  PerByte send_us_per_byte;     // of the sender's processor
  PerByte receive_us_per_byte;  // of the receiver's
  double piece_bytes = 0;       // forwarded at a time; 0: the whole message
  double buffer_bytes = 0;      // of a lane
  bool operator==(const MessageCosts&) const = default;
};

// The costs without measurements.
struct TransportCosts {
  MessageCosts messages;
  // After a wait for a message, the wait for a time slice, for each other rank on the processor.
  double turn_us = 0;
  double call_us = 0;  // of a rank, for each call
  // Rate of the host's port to other hosts, in one direction.
  double port_gbytes_per_second = 0;
  double port_latency_us = 0;
};

}  // namespace tutti::internal
