#include "transport/shm/costs.h"

namespace tutti::internal::transport::shm {

// Fitted by topology::fit_costs to what `tutti tune` measured with 2, 4 and 8 ranks on two processors, all together.
TransportCosts costs() {
  TransportCosts costs;
  costs.messages.latency_us = 0.092;
  costs.messages.message_us = 0.0243;
  costs.messages.send_us_per_byte = PerByte({0.000134, 6.4e-05, 6.3e-05, 0.000117});
  costs.messages.receive_us_per_byte = PerByte({8.95e-05, 4.26e-05, 4.2e-05, 7.8e-05});
  costs.messages.piece_bytes = 108000;
  costs.messages.buffer_bytes = 1.2e7;
  costs.turn_us = 0.67;
  costs.call_us = 0.01;
  return costs;
}

}  // namespace tutti::internal::transport::shm
