#include "transport/tcp/costs.h"

namespace tutti::internal::transport::tcp {

// Messages fitted to what was measured within a machine of two processors. The port is an assumption: Ethernet of 25
// Gbit/s.
TransportCosts costs() {
  TransportCosts costs;
  costs.messages.latency_us = 0.042;
  costs.messages.message_us = 1.16;
  costs.messages.send_us_per_byte = PerByte({0.00017, 0.000102, 0.000118, 0.000184});
  costs.messages.receive_us_per_byte = PerByte({0.000132, 7.89e-05, 9.15e-05, 0.000142});
  costs.messages.piece_bytes = 54000;
  costs.messages.buffer_bytes = 166000;
  costs.turn_us = 3;
  costs.call_us = 0.94;
  costs.port_gbytes_per_second = 3.125;
  costs.port_latency_us = 10;
  return costs;
}

}  // namespace tutti::internal::transport::tcp
