#include "transport/shm/costs.h"

namespace tutti::internal::transport::shm {

// Fitted to measurements of `tutti tune` with 2, 4 and 8 ranks on two processors and with 2 to 16 on sixteen; all
// measurements together, with one factor for the different speeds of the two machines.
TransportCosts costs() {
  TransportCosts costs;
  costs.messages.latency_us = 0.088;
  costs.messages.message_us = 0.0289;
  costs.messages.send_us_per_byte = PerByte({9.93e-05, 5.64e-05, 5.92e-05, 0.000103});
  costs.messages.receive_us_per_byte = PerByte({8.83e-05, 5.02e-05, 5.26e-05, 9.18e-05});
  costs.messages.piece_bytes = 48000;
  costs.messages.buffer_bytes = 82000;
  costs.turn_us = 0.86;
  costs.call_us = 0.006;
  return costs;
}

}  // namespace tutti::internal::transport::shm
