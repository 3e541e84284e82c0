#include "transport/verbs/costs.h"

namespace tutti::internal::transport::verbs {

// Assumptions: a switched network of 100 Gbit/s; the device moves the bytes; a piece is a slot.
TransportCosts costs() {
  TransportCosts costs;
  costs.messages.latency_us = 1;
  costs.messages.message_us = 0.5;
  costs.messages.piece_bytes = 32.0 * 1024.0;
  costs.messages.buffer_bytes = 256.0 * 1024.0;
  costs.turn_us = 0.6;
  costs.call_us = 0.01;
  costs.port_gbytes_per_second = 12.5;
  costs.port_latency_us = 0.5;
  return costs;
}

}  // namespace tutti::internal::transport::verbs
