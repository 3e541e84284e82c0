// A batch whose buffers are in the memory of a device: divided into pieces, each of which is copied to the host, run
// there like any batch, and copied back (channel.h). Copies of one piece run in parallel with the work on others.
//
// All ranks divide alike: calls with blocks of one size by the bytes of their vectors, so that long ones become several
// calls of the communicator, each with some elements of every block, and short ones of a group form one piece. Each
// call with varying blocks is one piece, undivided, and all transfers together are one piece: not all ranks know their
// sizes.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <vector>

#include "calls/call.h"
#include "calls/operators.h"
#include "calls/transfer.h"
#include "device/channel.h"
#include "device/direct.h"
#include "device/rendezvous.h"

namespace tutti::internal {

struct Batch;

// The host's work for a batch.
struct HostPart {
  std::span<const Call> calls;
  std::span<const Transfer> transfers;
};

// The pieces of a batch, with their positions in a channel's slots. Immutable once made.
//
// Threads: any.
class DevicePlan {
 public:
  struct Piece {
    std::vector<memory::RowCopy> in;
    std::vector<memory::RowCopy> out;
    std::vector<Call> calls;
    std::vector<Transfer> transfers;
    std::vector<DirectCall> work;  // of the device, before the copies out
    // Objects that calls refer to: operators whose scalars are copied, and counts of blocks.
    std::vector<std::unique_ptr<CustomOperator>> operators;
    std::vector<std::unique_ptr<VaryingCounts>> counts;
    [[nodiscard]] HostPart part() const { return {calls, transfers}; }
  };

  // The channel, which then has enough room and outlives the plan, counts the pieces. kInvalidArgument for a buffer
  // that no device can access.
  struct Setting {
    int rank = 0;
    int ranks = 1;
    DeviceChannel& channel;
    const memory::CudaDevice& device;
    std::shared_ptr<DeviceRendezvous>
        by_windows;  // of ranks that have windows, for as long as the plan is there; or null
  };
  static Result<std::shared_ptr<const DevicePlan>> make(std::shared_ptr<const Batch> batch, const Setting& setting);
  DevicePlan(const DevicePlan&) = delete;
  DevicePlan& operator=(const DevicePlan&) = delete;

  // put_into(): all the work of the device; steps() and put_step(): the same step by step. A step waits only for the
  // results of earlier steps of all ranks and for the host's work.
  Status put_into(memory::CudaDevice::Stream stream) const;
  [[nodiscard]] std::size_t steps() const { return pieces_.size() + lag_; }
  Status put_step(std::size_t step, memory::CudaDevice::Stream stream) const;
  // Called before and after a run; the plan runs once at a time: false if it is running.
  [[nodiscard]] bool begin() const { return !under_way_.exchange(true); }
  void ended() const { under_way_.store(false); }
  // Marks everything for which the device waits as done, for a plan that does not run, or not to its end.
  void let_go() const;
  [[nodiscard]] const Batch& batch() const { return *batch_; }
  [[nodiscard]] const std::vector<Piece>& pieces() const { return pieces_; }
  [[nodiscard]] DeviceChannel& channel() const { return channel_; }
  // The channel's number of the first piece, and the number after the last.
  [[nodiscard]] std::uint32_t first() const { return first_; }
  [[nodiscard]] std::uint32_t end() const { return first_ + static_cast<std::uint32_t>(pieces_.size()); }

  // Size limit of the vectors in one piece.
  static constexpr std::size_t kPieceBytes = std::size_t{4} << 20;

 private:
  [[nodiscard]] bool uses_windows() const { return lag_ == 1; }
  // Allocates memory of a slot, or only computes how much is needed.
  class Room {
   public:
    explicit Room(std::byte* memory) : memory_(memory) {}
    std::byte* take(std::size_t bytes);
    [[nodiscard]] std::size_t taken() const { return taken_; }

   private:
    std::byte* const memory_;
    std::size_t taken_ = 0;
  };
  // The contents of a piece. By windows, a part of a call is two pieces: one is copied into windows and combined there,
  // the other is copied out of them.
  enum class Way : std::uint8_t { kHost, kIntoWindows, kOutOfWindows };
  struct Cut {
    std::size_t call = 0;   // the first call
    std::size_t calls = 0;  // 0: the transfers
    std::size_t begin = 0;  // of one call's elements, if the call is divided
    std::size_t count = 0;  // number of elements; 0: whole calls
    Way way = Way::kHost;
  };

  DevicePlan(std::shared_ptr<const Batch> batch, const Setting& setting)
      : batch_(std::move(batch)),
        rank_(setting.rank),
        ranks_(setting.ranks),
        channel_(setting.channel),
        device_(setting.device),
        rendezvous_(setting.by_windows),
        windows_(rendezvous_ == nullptr ? nullptr : &rendezvous_->windows()),
        first_(setting.channel.count()) {}
  Status fill_pieces();
  [[nodiscard]] std::vector<Cut> cuts() const;
  [[nodiscard]] Cut short_calls(std::size_t first) const;
  [[nodiscard]] bool goes_by_windows(const Call& call) const;
  // Appends the pieces of call i, in parts of `each` elements.
  void cut(std::size_t i, std::size_t each, std::initializer_list<Way> ways, std::vector<Cut>* all) const;
  void fill(const Cut& cut, Room& room, Piece* piece) const;
  void add(const Call& call, std::size_t begin, std::size_t count, Room& room, Piece* piece) const;
  // The copy between the call's buffer and `base`, where blocks of `count` elements are contiguous.
  [[nodiscard]] memory::RowCopy rows(const Call& call, const void* buffer, Holds holds, std::size_t begin,
                                     std::size_t count, std::byte* base) const;
  void add_by_windows(const Call& call, const Cut& cut, Piece* piece) const;
  void add_varying(const Call& call, Room& room, Piece* piece) const;
  void add_transfer(const Transfer& transfer, Room& room, Piece* piece) const;
  void take_scalar(Call* call, Room& room, Piece* piece) const;
  Status return_piece(std::size_t piece, memory::CudaDevice::Stream stream) const;

  const std::shared_ptr<const Batch> batch_;
  const int rank_;
  const int ranks_;
  DeviceChannel& channel_;
  const memory::CudaDevice& device_;
  const std::shared_ptr<DeviceRendezvous> rendezvous_;
  const DeviceWindows* const windows_;  // null: there are none
  const std::uint32_t first_;
  std::vector<Piece> pieces_;
  std::size_t lag_ = DeviceChannel::kSlots;  // pieces that enter before the first one returns
  mutable std::atomic<bool> under_way_{false};
};

// A running plan, as the host sees it.
//
// Threads: the one that runs the communicator's operations.
class DeviceRun {
 public:
  enum class State : std::uint8_t {
    kWaits,  // for the device
    kHost,   // for the host part, which must be run before the next advance()
    kDone,
  };

  // `timeout_ms`: the longest time without progress of the device.
  DeviceRun(std::shared_ptr<const DevicePlan> plan, std::int64_t timeout_ms);
  DeviceRun(const DeviceRun&) = delete;
  DeviceRun& operator=(const DeviceRun&) = delete;

  // Continues, without waiting and without the driver.
  Result<State> advance(HostPart* part, std::int64_t now_ns);
  // The remaining pieces are skipped, and the device copies back useless data.
  void stop() { stopped_ = true; }
  // Lets the stream continue, whatever happened to the pieces.
  void end() noexcept;
  [[nodiscard]] const Batch& batch() const { return plan_->batch(); }

 private:
  const std::shared_ptr<const DevicePlan> plan_;
  const std::int64_t timeout_ns_;
  std::size_t run_ = 0;   // pieces that the host has run
  bool on_host_ = false;  // the next piece is running
  bool stopped_ = false;
  std::int64_t waits_ns_ = 0;  // since when the device is awaited; 0: it is not
};

}  // namespace tutti::internal
