#include "transport/tcp/costs.h"

namespace tutti::internal::transport::tcp {

// Messages as of shared memory, measured within the machine. The port is an assumption: Ethernet of 25 Gbit/s.
TransportCosts costs() {
  TransportCosts costs;
  costs.messages.latency_us = 0;
  costs.messages.message_us = 1.5;
  costs.messages.send_us_per_byte = PerByte({2.05e-4, 1.04e-4, 1.36e-4, 1.78e-4});
  costs.messages.receive_us_per_byte = PerByte({1.36e-4, 7.0e-5, 9.0e-5, 1.18e-4});
  costs.messages.piece_bytes = 1e5;
  costs.messages.buffer_bytes = 2.1e5;
  costs.turn_us = 2.8;
  costs.port_gbytes_per_second = 3.125;
  costs.port_latency_us = 10;
  return costs;
}

}  // namespace tutti::internal::transport::tcp
