// A simulated network between ranks that are threads of one process, for tests: correct, but as adverse as the
// transport interface allows. Pieces are cut anywhere, refused, and held back; each lane has its own pace, so that
// lanes overtake each other; ranks stall and die.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "transport/transport.h"

namespace tutti::internal::transport::sim {

enum class Slots : std::uint8_t { kNever, kAlways, kByLane };

struct Options {
  std::size_t piece_bytes = 4096;          // LaneTraits
  std::size_t capacity_bytes = 64 * 1024;  // bytes taken and not yet consumed, about
  Slots slots = Slots::kByLane;            // kByLane: the seed decides for each lane
  // push() copies nothing, the peer reads the source in place: completed() follows the peer's consumption. A rank that
  // gives up keeps that memory until the other side has closed its end.
  bool maps_source = false;
  std::size_t zcopy_bytes = 0;  // with maps_source: shorter pieces are copied
  // No cuts and no refusals: only the rules of the interface.
  bool benign = false;
};

// A lane's decisions follow from the seed, its two ranks, how many links those two had before, and the
// calls on the lane; not from time or from other lanes.
//
// Rules that hold even here: a short view grows when peek() is called again without consume(), over
// every piece of its operation that has been taken; room from reserve() is n bytes or a multiple
// of 64, and grows when reserve() is called again.
//
// Threads: any thread may call any member. The links follow the transport's rule.
class Network {
 public:
  Network(std::uint64_t seed, int ranks, Options options);
  ~Network();
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  // rank's end of a link to peer; the k-th call for (rank, peer) matches the k-th for (peer, rank). The link may
  // outlive the Network. REQUIRES: 0 <= rank, peer < ranks. Null if the system has no descriptors.
  std::unique_ptr<Link> link(int rank, int peer);

  // From now on every lane from or to `rank` moves nothing and reports kRemoteError naming it.
  void kill(int rank);
  // Lanes from or to `rank` move nothing, without an error, until resume().
  void stall(int rank);
  void resume(int rank);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace tutti::internal::transport::sim
