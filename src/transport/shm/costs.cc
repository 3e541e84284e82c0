#include "transport/shm/costs.h"

#include "transport/shm/layout.h"

namespace tutti::internal::transport::shm {

// Fitted to all-reduces of 2, 4 and 8 ranks on two processors. alpha is that of messages of some KiB, where algorithms
// part ways; below, fewest rounds win whatever it is. Ranks that share a processor take turns: bytes cost each of them
// as many times as they are, messages a switch. With less than two ranks per processor some share none: messages
// between these cost what they always do, and others are not slower either.
LinkCosts costs(double ranks_per_cpu) {
  LinkCosts costs;
  costs.messages_in_turns = ranks_per_cpu >= 2;
  costs.alpha_us = costs.messages_in_turns ? 0.6 * ranks_per_cpu : 1.25;
  costs.message_us = costs.messages_in_turns ? 0.19 * ranks_per_cpu : 0.4;
  costs.beta_us_per_byte = 7e-5 * ranks_per_cpu;
  costs.piece_bytes = kSlotBytes;
  return costs;
}

}  // namespace tutti::internal::transport::shm
