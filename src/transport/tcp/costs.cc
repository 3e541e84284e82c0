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
  // Ranks that take turns, over TCP within a machine: all-gathers by recursive doubling take 0.6 to 0.7 times as long
  // as Bruck's with 4, 8 and 16 ranks to 16 KiB, 0.75 to 0.9 at 64 and 128 KiB, and as long beyond; with 6, 9, 12 and
  // 20 ranks 0.5 to 0.7 times as long at 1 KiB, 0.5 to 0.93 at 64 KiB.
  if (ranks_per_cpu > 1) costs.paired_round_saves_us = 6.0;
  return costs;
}

}  // namespace tutti::internal::transport::tcp
