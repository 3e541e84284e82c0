// Sends and receives: those that are called together run as one schedule with a table of chunks, one chunk for each.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "base/types.h"
#include "calls/transfer.h"
#include "epoch/plans.h"
#include "executor/operation.h"

namespace tutti::internal {

// Of one communicator. The k-th send of a rank to a peer matches the peer's k-th receive from the rank; both know k, so
// that transfers that do not match are detected.
//
// Threads: the one that runs the communicator's operations.
class Transfers {
 public:
  Transfers(int rank, int ranks);
  // Bound operations point into this object.
  Transfers(const Transfers&) = delete;
  Transfers& operator=(const Transfers&) = delete;

  // The operation for all of `transfers`, in any order except that transfers with one peer in one direction stay in
  // order. Valid until the next call here. Connects to peers that are not connected yet. REQUIRES: check_own() is ok.
  Result<const executor::Operation*> bind(std::span<const Transfer> transfers, Plans& plans);
  // The operation for a single transfer, if an earlier single transfer had the same peer and direction; else null, and
  // the caller calls bind().
  [[nodiscard]] const executor::Operation* repeat(std::span<const Transfer> transfers) {
    if (transfers.size() != 1) return nullptr;
    const Transfer& transfer = transfers.front();
    Direction& direction = direction_of(transfer);
    const executor::Plan* const plan = direction.plans[static_cast<std::size_t>(transfer.peer)].get();
    if (plan == nullptr) [[unlikely]]
      return nullptr;
    return bind_alone(&direction, *plan, transfer);
  }
  // The result of such an operation; a timeout gets a possible reason.
  static Status explain(Status status) {
    if (status.code() != Code::kTimeout) [[likely]]
      return status;
    return status.with_context(
        "a peer has not called what matches, is late, cannot be reached, or sends itself (sends that wait for each "
        "other go between tuttiGroupStart and tuttiGroupEnd)");
  }

 private:
  // The transfers without their buffers.
  using Key = std::vector<std::uint32_t>;
  static constexpr std::size_t kMostGroups = 64;
  // Chunks of one direction.
  struct Side {
    std::vector<schedule::ByteRange> places;
    std::vector<transport::Source> sources;
    std::vector<transport::Fingerprint> fingerprints;
    void resize(std::size_t chunks);
  };
  // Several transfers, prepared. Other transfers with the same key replace only the parts that depend on their buffers.
  struct Group {
    Key key;
    std::unique_ptr<executor::Plan> plan;
    std::array<Side, 2> sides;  // of sends, which read; of receives
    executor::ChunkTable table;
    executor::Operation operation;   // uses `table`
    executor::LocatedSteps located;  // of `operation`
    [[nodiscard]] bool is_of(std::span<const Transfer> transfers) const;
  };
  // Sends, or receives. A single transfer needs no table: it is a vector of one block, which one step sends or
  // receives.
  struct Direction {
    std::vector<std::uint32_t> numbers;                  // by peer: number of transfers called
    std::vector<std::unique_ptr<executor::Plan>> plans;  // by peer: plan of a single transfer; null if there was none
    executor::Operation operation;                       // the last single transfer
    executor::LocatedSteps located;                      // of `operation`
  };

  // The index in directions_, last_ and Group::sides, and the schedule's buffer.
  static constexpr std::size_t side_of(const Transfer& t) {
    return static_cast<std::size_t>(t.sends ? schedule::Buffer::kInput : schedule::Buffer::kOutput);
  }
  Direction& direction_of(const Transfer& t) { return directions_[side_of(t)]; }
  static const executor::Operation* bind_alone(Direction* direction, const executor::Plan& plan,
                                               const Transfer& transfer);

  Result<Group*> group_of(std::span<const Transfer> transfers, Plans& plans);
  [[nodiscard]] schedule::Schedule write(std::span<const Transfer> transfers) const;
  Result<std::unique_ptr<Group>> prepare(std::span<const Transfer> transfers, Plans& plans) const;
  void fill(Group* group, std::span<const Transfer> transfers);

  const int rank_;
  const int ranks_;
  std::array<Direction, 2> directions_;  // by side
  std::vector<std::unique_ptr<Group>> groups_;
  std::array<Group*, 2> last_{};  // by whether the first transfer receives: a rank that alternates sends and receives
                                  // finds both at once
};

}  // namespace tutti::internal
