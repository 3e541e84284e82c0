// What messages between two ranks cost: each transport publishes its own (costs.h in its folder), the cost model of the
// algorithms reads them.
#pragma once

namespace tutti::internal {

// A message of B bytes takes alpha + B beta, and while it is on its way its sender and its receiver can handle others,
// one every `message`. Only ratios decide.
struct LinkCosts {
  double alpha_us = 0;
  double beta_us_per_byte = 0;
  double message_us = 0;
  double incast = 1;       // how many times as much a byte costs where several ranks send to one at once
  double piece_bytes = 0;  // what a pipeline forwards at a time, at most
  // How much less a round costs if each rank receives from the peer to which it sends: where that was measured.
  double paired_round_saves_us = 0;
  // Whether alpha and message count as many times as ranks share a processor, as beta does. Else they are those of
  // ranks with processors of their own.
  bool messages_in_turns = true;
};

}  // namespace tutti::internal
