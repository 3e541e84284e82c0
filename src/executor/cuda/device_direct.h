// All-reduce of ranks that reach each other's buffers, in two shots: each rank combines its share of all inputs, in the
// order of ranks, and writes it to all outputs. Inputs are read once and outputs written once, and all ranks get the
// same bits. After Rabenseifner's reduce-scatter and all-gather (2004), with both done in place at the peers.
//
// A call needs nothing of the host: buffers are told through mailboxes, and calls are numbered on the device. So it can
// be captured in a graph and replayed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/types.h"
#include "executor/cuda/device_strands.h"
#include "executor/flat_lane.h"
#include "reduction/device_reduction.h"

namespace tutti::internal::executor {

inline constexpr int kMostDirectRanks = reduction::kMostDeviceInputs;
inline constexpr unsigned kMostDirectBlocks = 128;

// What a rank says of its call, to a thread block of a peer.
struct DirectNotice {
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  transport::Fingerprint fingerprint;
};

// A rank's, in memory of its device that its peers reach; zero at first. A thread block of a rank meets those of the
// same number of its peers here.
struct DirectMailbox {
  struct Meeting {
    std::array<FlatCounter, kMostDirectRanks> arrived;  // by rank: how often it has come; written by that rank
    std::array<DirectNotice, kMostDirectRanks> notices;
    std::uint64_t meetings = 0;  // that have been; the rank's own
  };
  std::array<Meeting, kMostDirectBlocks> meetings;
};

struct DirectCall {
  int rank = 0;
  int ranks = 1;
  std::array<DirectMailbox*, kMostDirectRanks> mailboxes{};  // of all, as this rank reaches them
  const std::byte* in = nullptr;                             // as all reach it
  std::byte* out = nullptr;                                  // may be `in`
  std::size_t count = 0;                                     // elements
  DataType type = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  std::uint32_t divisor = 0;  // of an average
  transport::Fingerprint fingerprint;
  unsigned blocks = 1;  // the same on all ranks
  DeviceControl* control = nullptr;
};

// Queued on a stream of the current device: a cudaError_t, 0 if it is. REQUIRES: the thread blocks of all ranks are
// resident together; 2 <= ranks <= kMostDirectRanks; blocks <= kMostDirectBlocks.
[[nodiscard]] int all_reduce_directly(const DirectCall& call, reduction::DeviceStream stream);

// Thread blocks of all ranks on the current device together; 0 if that cannot be found out.
[[nodiscard]] unsigned most_resident_direct_blocks(DataType type);

}  // namespace tutti::internal::executor
