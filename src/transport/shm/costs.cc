#include "transport/shm/costs.h"

namespace tutti::internal::transport::shm {

// Fitted by topology::fit_costs to what `tutti tune` measured with 2, 4 and 8 ranks on two processors, all together.
TransportCosts costs() {
  TransportCosts costs;
  costs.messages.latency_us = 0.07;
  costs.messages.message_us = 0.04;
  costs.messages.send_us_per_byte = PerByte({1.14e-4, 5.9e-5, 7.4e-5, 1.12e-4});
  costs.messages.receive_us_per_byte = PerByte({7.9e-5, 4.1e-5, 5.2e-5, 7.8e-5});
  costs.messages.piece_bytes = 85e3;
  costs.messages.buffer_bytes = 2e7;
  costs.turn_us = 0.58;
  return costs;
}

}  // namespace tutti::internal::transport::shm
