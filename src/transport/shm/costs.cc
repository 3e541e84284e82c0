#include "transport/shm/costs.h"

namespace tutti::internal::transport::shm {

// Fitted by topology::fit_costs to what `tutti tune` measured with 2, 4 and 8 ranks on two processors, all together.
TransportCosts costs() {
  TransportCosts costs;
  costs.messages.latency_us = 0.07;
  costs.messages.message_us = 0.04;
  costs.messages.send_us_per_byte = PerByte({0.000134, 6e-05, 7.14e-05, 0.00011});
  costs.messages.receive_us_per_byte = PerByte({8.96e-05, 4e-05, 4.76e-05, 7.32e-05});
  costs.messages.piece_bytes = 65536;
  costs.messages.buffer_bytes = 2e7;
  costs.turn_us = 0.67;
  costs.call_us = 0.01;
  return costs;
}

}  // namespace tutti::internal::transport::shm
