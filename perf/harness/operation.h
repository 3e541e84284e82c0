// One collective call on this rank, or its transfers, its buffers, and whether it did what it should.
#pragma once

#include <tutti/tutti.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "device.h"
#include "expected.h"
#include "options.h"

namespace tutti::internal::perf {

// One rank of the job, as the program sees it. Used by one thread.
struct Rank {
  int rank = 0;
  int ranks = 1;
  tuttiComm_t comm = nullptr;      // whose calls are measured
  tuttiComm_t own_comm = nullptr;  // of the same ranks, on memory of the host, for what the program itself tells
  tuttiStream_t stream = nullptr;  // null: calls block
  const Device* device = nullptr;  // where the buffers are, whose stream then takes the calls; null: on the host
  bool in_graphs = false;          // calls are captured, and run when that is launched
  // As the calls take it.
  [[nodiscard]] void* call_stream() const { return device != nullptr ? device->stream() : stream; }
};

// The library's error with its full text.
Status to_status(tuttiResult_t result, const char* what, tuttiComm_t comm);

// Waits for what was queued on the rank's stream, if it has one. Of a device's, with what has failed the communicator.
Status synchronize(const Rank& rank);

// Returns when all ranks have come, whatever their devices do.
Status meet(const Rank& rank);

// Page-aligned memory with guard bytes before and after the bytes that a call may touch. On a device, calls get a
// second buffer; upload() and download() copy between the two.
class Buffer {
 public:
  static Result<Buffer> make(Memory memory, const Device* device, std::size_t capacity_bytes);
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&&) = delete;
  ~Buffer();

  [[nodiscard]] std::byte* data() const { return base_ + kGuardBytes; }
  // The address that a call gets for an address in this buffer.
  [[nodiscard]] std::byte* for_call(std::byte* address) const {
    return device_ == nullptr ? address : on_device_ + (address - base_);
  }
  // The first `bytes` and their guards. Nothing without a device.
  Status upload(std::size_t bytes) const;
  Status download(std::size_t bytes) const;
  // Fills the first `bytes` with `fill` and renews the guards around them.
  void reset(std::size_t bytes, std::byte fill) const;
  // Guard bytes that have changed since reset(bytes).
  [[nodiscard]] std::size_t broken_guards(std::size_t bytes) const;

 private:
  static constexpr std::size_t kGuardBytes = 4096;
  Buffer(Memory memory, std::byte* base) : memory_(memory), base_(base) {}
  Memory memory_;
  std::byte* base_;
  const Device* device_ = nullptr;
  std::byte* on_device_ = nullptr;
};

// The two buffers of a rank, large enough for every problem of the run.
struct Buffers {
  Buffer send;
  Buffer recv;  // holds both where a call is in place
};

// A problem bound to a rank's buffers.
class Operation {
 public:
  // `aggregate`: calls of each iteration.
  Operation(const Problem& problem, const Rank& rank, const Buffers& buffers, bool in_place, int aggregate);

  // One iteration: the call, or the transfers, or a group of them, each on buffers of its own; on the rank's stream
  // they are only queued.
  [[nodiscard]] tuttiResult_t iterate() const;
  // Makes the call once on fresh data; the number of wrong elements and overwritten bytes on this rank.
  Result<std::int64_t> verify() const;
  // Zeros everywhere, so that repeated calls in place meet neither subnormal nor infinite numbers.
  Status clear() const;

 private:
  // `shift`: of all addresses, in bytes.
  [[nodiscard]] tuttiResult_t call(std::size_t shift = 0) const;
  [[nodiscard]] tuttiResult_t call_collective(Collective collective, std::size_t shift) const;
  [[nodiscard]] tuttiResult_t call_transfers(Transfers transfers, std::size_t shift) const;
  Status prepare() const;
  Status run_once() const;
  [[nodiscard]] std::byte* sent(std::size_t shift) const {
    return (in_place_ ? buffers_.recv : buffers_.send).for_call(send_ + shift);
  }
  [[nodiscard]] std::byte* received(std::size_t shift) const { return buffers_.recv.for_call(recv_ + shift); }
  // Both buffers, as far as the call may touch them, and `beyond` more bytes.
  Status upload(std::size_t beyond = 0) const;
  Status download() const;
  [[nodiscard]] std::int64_t count_errors() const;
  // The bytes from `begin` to `end` in the receive buffer, which a call must not touch, that differ from prepare()'s.
  [[nodiscard]] std::size_t count_touched(const std::byte* begin, const std::byte* end) const;
  [[nodiscard]] std::size_t recv_span_bytes() const;

  const Problem& problem_;
  const Rank& rank_;
  const Buffers& buffers_;
  std::vector<std::size_t> blocks_;  // of this rank's vector
  bool in_place_;
  std::size_t aggregate_;
  std::byte* send_;
  std::byte* recv_;
};

// A barrier may return on no rank before every rank has entered it. Ranks enter at different times; the
// clock they share tells. Returns the ranks that came out too early, or -1 if the ranks are on several
// machines, which share no clock.
Result<std::int64_t> verify_barrier(const Rank& rank);

}  // namespace tutti::internal::perf
