// A batch whose buffers are in the memory of a device: cut into pieces, each of which is copied to the host, run there
// as any batch is, and copied back (channel.h). Copies of one piece run beside the work on others.
//
// Ranks cut alike: calls with blocks of one size by their vectors' bytes, so that long ones become several calls of the
// communicator, each of some elements of every block, and short ones of a group pass together. Calls with varying
// blocks pass one by one, whole, and so do all transfers together: their sizes are not known to all ranks.
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

// What the host has to run of a batch.
struct HostPart {
  std::span<const Call> calls;
  std::span<const Transfer> transfers;
};

// The pieces of a batch, with their places in a channel's slots. Does not change once made.
//
// Threads: any.
class DevicePlan {
 public:
  struct Piece {
    std::vector<memory::RowCopy> in;
    std::vector<memory::RowCopy> out;
    std::vector<Call> calls;
    std::vector<Transfer> transfers;
    std::vector<DirectCall> work;  // of the device, before what goes out
    // What calls refer to: operators whose scalars are copied, and counts of blocks.
    std::vector<std::unique_ptr<CustomOperator>> operators;
    std::vector<std::unique_ptr<VaryingCounts>> counts;
    [[nodiscard]] HostPart part() const { return {calls, transfers}; }
  };

  // The channel, which has that much room then and outlives it, counts the pieces.
  // kInvalidArgument for a buffer that no device reaches.
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

  // All that the device has to do for it; the same step by step. No step waits for more than what the steps before it
  // of all ranks bring, and the host's work.
  Status put_into(memory::CudaDevice::Stream stream) const;
  [[nodiscard]] std::size_t steps() const { return pieces_.size() + lag_; }
  Status put_step(std::size_t step, memory::CudaDevice::Stream stream) const;
  // Before and after it is run, which it is once at a time: false if it is under way.
  [[nodiscard]] bool begin() const { return !under_way_.exchange(true); }
  void ended() const { under_way_.store(false); }
  // What the device waits for is done, as far as it knows: of a plan that is not run, or not to its end.
  void let_go() const;
  [[nodiscard]] const Batch& batch() const { return *batch_; }
  [[nodiscard]] const std::vector<Piece>& pieces() const { return pieces_; }
  [[nodiscard]] DeviceChannel& channel() const { return channel_; }
  // The channel's number of the first piece, and of what comes behind the last.
  [[nodiscard]] std::uint32_t first() const { return first_; }
  [[nodiscard]] std::uint32_t end() const { return first_ + static_cast<std::uint32_t>(pieces_.size()); }

  // Of vectors that pass at once.
  static constexpr std::size_t kPieceBytes = std::size_t{4} << 20;

 private:
  [[nodiscard]] bool uses_windows() const { return lag_ == 1; }
  // Gives out a slot's memory, or only counts how much there will be.
  class Room {
   public:
    explicit Room(std::byte* memory) : memory_(memory) {}
    std::byte* take(std::size_t bytes);
    [[nodiscard]] std::size_t taken() const { return taken_; }

   private:
    std::byte* const memory_;
    std::size_t taken_ = 0;
  };
  // What a piece consists of. By windows a part of a call is two: what is copied into windows and combined there, and
  // what is copied out of them.
  enum class Way : std::uint8_t { kHost, kIntoWindows, kOutOfWindows };
  struct Cut {
    std::size_t call = 0;   // the first one
    std::size_t calls = 0;  // none: transfers
    std::size_t begin = 0;  // of one call's elements, if that is cut
    std::size_t count = 0;  // of them; 0: whole calls
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
  // Those of call i, in parts of `each` elements.
  void cut(std::size_t i, std::size_t each, std::initializer_list<Way> ways, std::vector<Cut>* all) const;
  void fill(const Cut& cut, Room& room, Piece* piece) const;
  void add(const Call& call, std::size_t begin, std::size_t count, Room& room, Piece* piece) const;
  // From `base`, or to it, where blocks of `count` elements lie one behind the other.
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
  const DeviceWindows* const windows_;  // null: none
  const std::uint32_t first_;
  std::vector<Piece> pieces_;
  std::size_t lag_ = DeviceChannel::kSlots;  // pieces that enter before the first one returns
  mutable std::atomic<bool> under_way_{false};
};

// A plan under way, as the host sees it.
//
// Threads: the one that runs the communicator's operations.
class DeviceRun {
 public:
  enum class State : std::uint8_t {
    kWaits,  // for the device
    kHost,   // for the host part, which is to be run before the next advance()
    kDone,
  };

  // `timeout_ms`: for so long the device may make no progress.
  DeviceRun(std::shared_ptr<const DevicePlan> plan, std::int64_t timeout_ms);
  DeviceRun(const DeviceRun&) = delete;
  DeviceRun& operator=(const DeviceRun&) = delete;

  // Goes on, without waiting and without the driver.
  Result<State> advance(HostPart* part, std::int64_t now_ns);
  // The rest is left out, and what the device copies back is of no use.
  void stop() { stopped_ = true; }
  // The stream goes on, whatever has become of the pieces.
  void end() noexcept;
  [[nodiscard]] const Batch& batch() const { return plan_->batch(); }

 private:
  const std::shared_ptr<const DevicePlan> plan_;
  const std::int64_t timeout_ns_;
  std::size_t run_ = 0;   // pieces that the host has run
  bool on_host_ = false;  // the next one is under way
  bool stopped_ = false;
  std::int64_t waits_ns_ = 0;  // since when, for the device; 0: not
};

}  // namespace tutti::internal
