// A link that misbehaves on purpose: a decorator over any other link, for tests.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "transport/transport.h"

namespace tutti::internal::transport::sim {

inline constexpr std::uint64_t kNoFault = UINT64_MAX;

// The faults of one lane, each after this many bytes of it (taken when sending, consumed when receiving) have passed
// without fault.
struct Faults {
  std::uint64_t cut_after_bytes = kNoFault;      // the lane fails with kRemoteError, on this side only
  std::uint64_t stall_after_bytes = kNoFault;    // the lane moves nothing any more and reports no error
  std::uint64_t corrupt_after_bytes = kNoFault;  // fingerprints from here on have a wrong sequence number
  std::uint64_t damage_at_byte = kNoFault;       // this byte arrives with one bit changed; only of a receiving lane
  std::size_t longest_piece_bytes = SIZE_MAX;    // of one push(), reserve(), peek() or pull(); at least 1
};

// An unchanged link that counts its calls of Link::begin_operation in *begun, which outlives it.
std::unique_ptr<Link> make_counting(std::unique_ptr<Link> link, int peer, std::atomic<int>* begun);

// `peer`: the rank that the error of a cut names. Threads: as the link.
std::unique_ptr<Link> make_faulty(std::unique_ptr<Link> link, int peer, const Faults& send, const Faults& recv);

}  // namespace tutti::internal::transport::sim
