#include "operation.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "os/clock.h"
#include "problems.h"

namespace tutti::internal::perf {
namespace {

constexpr std::byte kGuard{0xC3};
constexpr std::byte kPoison{0x5A};

tuttiDataType_t api(DataType type) {
  return static_cast<tuttiDataType_t>(public_value(type));
}
tuttiRedOp_t api(ReduceOp op) {
  return static_cast<tuttiRedOp_t>(public_value(op));
}

bool all_equal(const std::byte* data, std::size_t bytes, std::byte value) {
  return std::all_of(data, data + bytes, [value](std::byte b) { return b == value; });
}

// A number that two processes share exactly if they run under the same kernel, and so the same clock.
std::uint64_t boot_number() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string text;
  std::getline(file, text);
  return std::hash<std::string>{}(text);
}

}  // namespace

Status to_status(tuttiResult_t result, const char* what, tuttiComm_t comm) {
  if (result == tuttiSuccess) return Status::ok();
  std::string text = tuttiGetLastError(comm);
  if (text.empty()) text = tuttiGetErrorString(result);
  return Status(static_cast<Code>(result), text).with_context(what);
}

Status synchronize(const Rank& rank) {
  if (rank.device != nullptr) {
    if (Status s = rank.device->synchronize(); !s.is_ok()) return s;
    tuttiResult_t failed = tuttiSuccess;
    if (Status s = to_status(tuttiCommGetAsyncError(rank.comm, &failed), "tuttiCommGetAsyncError", rank.comm);
        !s.is_ok())
      return s;
    return to_status(failed, "the operation", rank.comm);
  }
  if (rank.stream == nullptr) return Status::ok();
  return to_status(tuttiStreamSynchronize(rank.stream), "tuttiStreamSynchronize", rank.comm);
}

Status meet(const Rank& rank) {
  return to_status(tuttiBarrier(rank.own_comm, nullptr), "tuttiBarrier", rank.own_comm);
}

Result<Buffer> Buffer::make(Memory memory, const Device* device, std::size_t capacity_bytes) {
  const std::size_t bytes = (capacity_bytes + 2 * kGuardBytes + 4095) / 4096 * 4096;
  void* base = nullptr;
  if (memory == Memory::kTutti) {
    if (Status status = to_status(tuttiMemAlloc(&base, bytes), "tuttiMemAlloc", nullptr); !status.is_ok())
      return status;
  } else {
    base = std::aligned_alloc(4096, bytes);
    if (base == nullptr) return Status::system(fmt::format("no memory for a buffer of {} bytes", bytes), errno);
  }
  std::memset(base, 0, bytes);
  Buffer made(memory, static_cast<std::byte*>(base));
  if (device == nullptr) return made;
  auto on_device = device->allocate(bytes);
  if (!on_device.is_ok()) return on_device.status();
  made.device_ = device;
  made.on_device_ = *on_device;
  return made;
}

Buffer::Buffer(Buffer&& other) noexcept
    : memory_(other.memory_),
      base_(std::exchange(other.base_, nullptr)),
      device_(other.device_),
      on_device_(other.on_device_) {}

Buffer::~Buffer() {
  if (base_ == nullptr) return;
  if (device_ != nullptr) device_->free(on_device_);
  if (memory_ == Memory::kTutti) {
    // A failure here has no consequence for what was measured, and the process is about to end.
    static_cast<void>(tuttiMemFree(base_));
  } else {
    std::free(base_);
  }
}

Status Buffer::upload(std::size_t bytes) const {
  return device_ == nullptr ? Status::ok() : device_->copy(on_device_, base_, bytes + 2 * kGuardBytes);
}

Status Buffer::download(std::size_t bytes) const {
  return device_ == nullptr ? Status::ok() : device_->copy(base_, on_device_, bytes + 2 * kGuardBytes);
}

void Buffer::reset(std::size_t bytes, std::byte fill) const {
  std::fill_n(base_, kGuardBytes, kGuard);
  std::fill_n(data(), bytes, fill);
  std::fill_n(data() + bytes, kGuardBytes, kGuard);
}

std::size_t Buffer::broken_guards(std::size_t bytes) const {
  std::size_t broken = 0;
  for (const std::byte* guard : {base_, data() + bytes}) {
    if (all_equal(guard, kGuardBytes, kGuard)) continue;
    broken += kGuardBytes - static_cast<std::size_t>(std::count(guard, guard + kGuardBytes, kGuard));
  }
  return broken;
}

Operation::Operation(const Problem& problem, const Rank& rank, const Buffers& buffers, bool in_place, int aggregate)
    : problem_(problem),
      rank_(rank),
      buffers_(buffers),
      blocks_(problem.blocks(rank.rank)),
      in_place_(in_place),
      aggregate_(static_cast<std::size_t>(aggregate)),
      send_(in_place ? buffers.recv.data() : buffers.send.data()),
      recv_(buffers.recv.data()) {
  if (!in_place) return;
  if (!problem.subject.has_blocks()) return;
  const std::size_t own = problem.elements_before(rank.rank, rank.rank) * size_of(problem.datatype);
  if (problem.subject.gives_own_block()) send_ += own;
  if (problem.subject.gets_own_block()) recv_ += own;
}

std::size_t Operation::recv_span_bytes() const {
  return in_place_ ? std::max(problem_.send_bytes(rank_.rank), problem_.recv_bytes(rank_.rank))
                   : problem_.recv_bytes(rank_.rank);
}

tuttiResult_t Operation::call(std::size_t shift) const {
  const Collective* const collective = problem_.subject.collective();
  return collective != nullptr ? call_collective(*collective, shift)
                               : call_transfers(*problem_.subject.transfers(), shift);
}

tuttiResult_t Operation::iterate() const {
  if (aggregate_ == 1) return call();
  tuttiResult_t result = tuttiGroupStart();
  if (result != tuttiSuccess) return result;
  const std::size_t stride = stride_bytes(problem_);
  for (std::size_t i = 0; i < aggregate_ && result == tuttiSuccess; ++i) result = call(i * stride);
  const tuttiResult_t ended = tuttiGroupEnd();
  return result == tuttiSuccess ? ended : result;
}

tuttiResult_t Operation::call_transfers(Transfers transfers, std::size_t shift) const {
  const tuttiDataType_t type = api(problem_.datatype);
  const std::size_t count = problem_.count;
  void* const stream = rank_.call_stream();
  const int ranks = problem_.ranks;
  const int next = (rank_.rank + 1) % ranks;
  const int before = (rank_.rank + ranks - 1) % ranks;
  const auto send = [&] { return tuttiSend(sent(shift), count, type, next, rank_.comm, stream); };
  const auto receive = [&] { return tuttiRecv(received(shift), count, type, before, rank_.comm, stream); };
  const bool receives_first = transfers == Transfers::kPingPong && rank_.rank != 0;
  const bool grouped = transfers == Transfers::kSendRecv;
  tuttiResult_t result = grouped ? tuttiGroupStart() : tuttiSuccess;
  if (result != tuttiSuccess) return result;
  result = receives_first ? receive() : send();
  if (result == tuttiSuccess) result = receives_first ? send() : receive();
  // Also of a call that was refused: the group is this thread's.
  const tuttiResult_t ended = grouped ? tuttiGroupEnd() : tuttiSuccess;
  return result != tuttiSuccess ? result : ended;
}

tuttiResult_t Operation::call_collective(Collective collective, std::size_t shift) const {
  const Problem& p = problem_;
  const tuttiDataType_t type = api(p.datatype);
  const tuttiComm_t comm = rank_.comm;
  void* const stream = rank_.call_stream();
  std::byte* const send = sent(shift);
  std::byte* const recv = received(shift);
  const std::size_t* const counts = blocks_.data();
  const std::size_t own = p.subject.varies() ? blocks_[static_cast<std::size_t>(rank_.rank)] : 0;
  switch (collective) {
    case Collective::kAllReduce: return tuttiAllReduce(send, recv, p.count, type, api(p.op), comm, stream);
    case Collective::kReduceScatter: return tuttiReduceScatter(send, recv, p.count, type, api(p.op), comm, stream);
    case Collective::kAllGather: return tuttiAllGather(send, recv, p.count, type, comm, stream);
    case Collective::kBroadcast: return tuttiBroadcast(send, recv, p.count, type, p.root, comm, stream);
    case Collective::kReduce: return tuttiReduce(send, recv, p.count, type, api(p.op), p.root, comm, stream);
    case Collective::kBarrier: return tuttiBarrier(comm, stream);
    case Collective::kGather: return tuttiGather(send, recv, p.count, type, p.root, comm, stream);
    case Collective::kScatter: return tuttiScatter(send, recv, p.count, type, p.root, comm, stream);
    case Collective::kAllToAll: return tuttiAlltoAll(send, recv, p.count, type, comm, stream);
    case Collective::kScan: return tuttiScan(send, recv, p.count, type, api(p.op), comm, stream);
    case Collective::kExscan: return tuttiExscan(send, recv, p.count, type, api(p.op), comm, stream);
    case Collective::kAllGatherV: return tuttiAllGatherV(send, own, recv, counts, nullptr, type, comm, stream);
    case Collective::kReduceScatterV: return tuttiReduceScatterV(send, recv, counts, type, api(p.op), comm, stream);
    case Collective::kAllToAllV:
      return tuttiAlltoAllV(send, counts, nullptr, recv, counts, nullptr, type, comm, stream);
    case Collective::kGatherV: return tuttiGatherV(send, own, recv, counts, nullptr, type, p.root, comm, stream);
    case Collective::kScatterV: return tuttiScatterV(send, counts, nullptr, recv, own, type, p.root, comm, stream);
  }
  return tuttiInvalidArgument;
}

Status Operation::upload(std::size_t beyond) const {
  if (Status s = buffers_.send.upload(problem_.send_bytes(rank_.rank) + beyond); !s.is_ok()) return s;
  return buffers_.recv.upload(recv_span_bytes() + beyond);
}

Status Operation::download() const {
  if (Status s = buffers_.send.download(problem_.send_bytes(rank_.rank)); !s.is_ok()) return s;
  return buffers_.recv.download(recv_span_bytes());
}

Status Operation::clear() const {
  const std::size_t beyond = (aggregate_ - 1) * stride_bytes(problem_);
  buffers_.send.reset(problem_.send_bytes(rank_.rank) + beyond, std::byte{0});
  buffers_.recv.reset(recv_span_bytes() + beyond, std::byte{0});
  return upload(beyond);
}

Status Operation::prepare() const {
  buffers_.send.reset(problem_.send_bytes(rank_.rank), kPoison);
  buffers_.recv.reset(recv_span_bytes(), kPoison);
  fill_send(problem_, rank_.rank, {send_, problem_.send_bytes(rank_.rank)});
  return upload();
}

std::size_t Operation::count_touched(const std::byte* begin, const std::byte* end) const {
  // In place, of the input what lies there.
  const std::byte* const first = in_place_ ? std::clamp<const std::byte*>(send_, begin, end) : end;
  const std::byte* const last =
      in_place_ ? std::clamp<const std::byte*>(send_ + problem_.send_bytes(rank_.rank), first, end) : end;
  std::size_t touched = 0;
  if (!all_equal(begin, static_cast<std::size_t>(first - begin), kPoison)) ++touched;
  if (!all_equal(last, static_cast<std::size_t>(end - last), kPoison)) ++touched;
  if (first == last) return touched;
  const std::size_t before = static_cast<std::size_t>(first - send_) / size_of(problem_.datatype);
  return touched + count_changed(problem_, rank_.rank, before, {first, last});
}

std::int64_t Operation::count_errors() const {
  const std::byte* const begin = buffers_.recv.data();
  const std::byte* const end = begin + recv_span_bytes();
  const std::size_t received = problem_.receives(rank_.rank) ? problem_.recv_bytes(rank_.rank) : 0;
  std::size_t errors = buffers_.recv.broken_guards(recv_span_bytes());
  if (received > 0) errors += count_wrong(problem_, rank_.rank, {recv_, received});
  errors += count_touched(begin, recv_) + count_touched(recv_ + received, end);
  if (!in_place_) {
    errors += count_changed(problem_, rank_.rank, 0, {send_, problem_.send_bytes(rank_.rank)});
    errors += buffers_.send.broken_guards(problem_.send_bytes(rank_.rank));
  }
  return static_cast<std::int64_t>(errors);
}

Status Operation::run_once() const {
  const auto once = [&] { return to_status(call(), "the operation", rank_.comm); };
  if (!rank_.in_graphs) {
    if (Status status = once(); !status.is_ok()) return status;
    return synchronize(rank_);
  }
  auto graph = Graph::capture(*rank_.device, once);
  if (!graph.is_ok()) return graph.status();
  // Graphs that wait for each other in the device are all made before one runs.
  if (Status status = meet(rank_); !status.is_ok()) return status;
  if (Status status = (*graph)->launch(); !status.is_ok()) return status;
  return synchronize(rank_);
}

Result<std::int64_t> Operation::verify() const {
  if (Status status = prepare(); !status.is_ok()) return status;
  if (Status status = run_once(); !status.is_ok()) return status;
  if (Status status = download(); !status.is_ok()) return status;
  return count_errors();
}

Result<std::int64_t> verify_barrier(const Rank& rank) {
  struct Visit {
    std::int64_t entered_ns;
    std::int64_t left_ns;
    std::uint64_t boot;
  };
  constexpr std::size_t kWords = sizeof(Visit) / sizeof(std::uint64_t);
  std::this_thread::sleep_for(std::chrono::milliseconds(rank.rank * 7 % 20));
  Visit mine{now_ns(), 0, boot_number()};
  if (Status status = to_status(tuttiBarrier(rank.comm, rank.call_stream()), "tuttiBarrier", rank.comm);
      !status.is_ok()) {
    return status;
  }
  if (Status status = synchronize(rank); !status.is_ok()) return status;
  mine.left_ns = now_ns();
  std::vector<Visit> visits(static_cast<std::size_t>(rank.ranks));
  const tuttiResult_t result = tuttiAllGather(&mine, visits.data(), kWords, tuttiUint64, rank.own_comm, nullptr);
  if (Status status = to_status(result, "tuttiAllGather", rank.own_comm); !status.is_ok()) return status;
  std::int64_t last_entry_ns = 0;
  for (const Visit& visit : visits) {
    if (visit.boot != visits.front().boot) return std::int64_t{-1};
    last_entry_ns = std::max(last_entry_ns, visit.entered_ns);
  }
  return std::int64_t{mine.left_ns < last_entry_ns ? 1 : 0};
}

}  // namespace tutti::internal::perf
