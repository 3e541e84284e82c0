// What messages between two ranks cost: each transport publishes its own (costs.h in its folder), or `tutti tune` fits
// them to what it measures; the simulator reads them.
#pragma once

#include <array>

namespace tutti::internal {

// Between powers of two linear; the same on all machines.
double log2_by_parts(double number);

// What a byte costs by the size of the vector that it is part of: given at some sizes, linear in between over their
// logarithm, constant beyond (in the manner of PLogP, whose functions are of the message's size: Kielmann, Bal,
// Verstoep: Fast measurement of LogP parameters for message passing platforms, IPDPS 2000 Workshops).
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

// Of messages of one kind, links aside.
struct MessageCosts {
  double latency_us = 0;
  double message_us = 0;        // of each side's processor, for a message
  PerByte send_us_per_byte;     // of the sender's processor
  PerByte receive_us_per_byte;  // of the receiver's
  double piece_bytes = 0;       // passed on at a time; 0: the message as a whole
  double buffer_bytes = 0;      // of a lane
  bool operator==(const MessageCosts&) const = default;
};

// Where nothing was measured.
struct TransportCosts {
  MessageCosts messages;
  // What a rank that has waited for a message waits for its turn, for each other one that its processor has.
  double turn_us = 0;
  double call_us = 0;  // of a rank, for each call
  // Of the port of a host by which its ranks reach others, one direction.
  double port_gbytes_per_second = 0;
  double port_latency_us = 0;
};

}  // namespace tutti::internal
