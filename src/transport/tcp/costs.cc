#include "transport/tcp/costs.h"

namespace tutti::internal::transport::tcp {

// Messages as of shared memory, measured within the machine. The port is an assumption: Ethernet of 25 Gbit/s.
TransportCosts costs() {
  TransportCosts costs;
  costs.messages.latency_us = 0.05;
  costs.messages.message_us = 1.2;
  costs.messages.send_us_per_byte = PerByte({0.000175, 0.000102, 0.00014, 0.00018});
  costs.messages.receive_us_per_byte = PerByte({0.000116, 6.8e-05, 9.32e-05, 0.00012});
  costs.messages.piece_bytes = 32768;
  costs.messages.buffer_bytes = 524288;
  costs.turn_us = 3;
  costs.call_us = 0.94;
  costs.port_gbytes_per_second = 3.125;
  costs.port_latency_us = 10;
  return costs;
}

}  // namespace tutti::internal::transport::tcp
