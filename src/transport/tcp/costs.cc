#include "transport/tcp/costs.h"

namespace tutti::internal::transport::tcp {

LinkCosts costs(double ranks_per_cpu) {
  LinkCosts costs;
  costs.alpha_us = 20.0;
  costs.beta_us_per_byte = 4.5e-4;
  costs.message_us = ranks_per_cpu > 1 ? 12.0 : 4.0;
  // Four ranks over TCP within a machine, 256 KiB to 1 MiB: directly 1.6 to 2 times the time of halving.
  costs.incast = 1.5;
  costs.piece_bytes = 32.0 * 1024.0;
  return costs;
}

}  // namespace tutti::internal::transport::tcp
