#include "device/plan.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <utility>

#include "calls/batch.h"

namespace tutti::internal {
namespace {

constexpr std::size_t kMostCalls = 256;  // of a piece

std::size_t vector_bytes(const Call& call, int ranks) {
  return call.count * element_bytes_of(call) * blocks_of(call.collective, ranks);
}

std::byte* bytes_at(const void* base) {
  return static_cast<std::byte*>(const_cast<void*>(base));
}

}  // namespace

std::byte* DevicePlan::Room::take(std::size_t bytes) {
  const std::size_t at = taken_;
  constexpr std::size_t kMask = DeviceChannel::kAlignment - 1;
  taken_ = (taken_ + bytes + kMask) & ~kMask;
  return memory_ == nullptr ? nullptr : memory_ + at;
}

Result<std::shared_ptr<const DevicePlan>> DevicePlan::make(std::shared_ptr<const Batch> batch, const Setting& setting) {
  std::shared_ptr<DevicePlan> plan(new DevicePlan(std::move(batch), setting));
  if (Status s = plan->fill_pieces(); !s.is_ok()) return s;
  setting.channel.add(static_cast<std::uint32_t>(plan->pieces_.size()));
  return std::shared_ptr<const DevicePlan>(std::move(plan));
}

Status DevicePlan::fill_pieces() {
  const std::vector<Cut> all = cuts();
  pieces_.resize(all.size());
  // A window contains one part at a time.
  if (std::any_of(all.begin(), all.end(), [](const Cut& c) { return c.way != Way::kHost; })) lag_ = 1;
  // Computes all sizes first: a slot keeps its address for all of its pieces.
  std::array<std::size_t, DeviceChannel::kSlots> bytes{};
  for (std::size_t i = 0; i < all.size(); ++i) {
    Room counted(nullptr);
    fill(all[i], counted, &pieces_[i]);
    std::size_t& most = bytes[i % bytes.size()];
    most = std::max(most, counted.taken());
  }
  for (std::size_t slot = 0; slot < bytes.size(); ++slot) {
    if (Status s = channel_.reserve(slot, bytes[slot], device_); !s.is_ok()) return s;
  }
  for (std::size_t i = 0; i < all.size(); ++i) {
    Room room(channel_.slot(i % bytes.size()));
    fill(all[i], room, &pieces_[i]);
  }
  return {};
}

Status DevicePlan::put_into(memory::CudaDevice::Stream stream) const {
  for (std::size_t step = 0; step < steps(); ++step) {
    if (Status s = put_step(step, stream); !s.is_ok()) return s;
  }
  return {};
}

Status DevicePlan::put_step(std::size_t step, memory::CudaDevice::Stream stream) const {
  if (step >= lag_) {
    if (Status s = return_piece(step - lag_, stream); !s.is_ok()) return s;
  }
  if (step < pieces_.size()) {
    for (const memory::RowCopy& copy : pieces_[step].in) {
      if (Status s = device_.copy_to_host(stream, copy); !s.is_ok()) return s;
    }
    std::uint32_t* const entered = channel_.word(DeviceChannel::Word::kEntered);
    return device_.write(stream, entered, first_ + static_cast<std::uint32_t>(step) + 1);
  }
  if (step + 1 < steps()) return {};
  return device_.write(stream, channel_.word(DeviceChannel::Word::kReturned), end());
}

// Stops its kernels first, because they would access the windows of all ranks.
void DevicePlan::let_go() const {
  if (uses_windows()) rendezvous_->stop(rank_);
  channel_.store(DeviceChannel::Word::kRun, end());
}

Status DevicePlan::return_piece(std::size_t piece, memory::CudaDevice::Stream stream) const {
  const std::uint32_t* const run = channel_.word(DeviceChannel::Word::kRun);
  if (Status s = device_.wait_for(stream, run, first_ + static_cast<std::uint32_t>(piece) + 1); !s.is_ok()) return s;
  for (const DirectCall& work : pieces_[piece].work) {
    if (Status s = windows_->kernels->launch(work, stream); !s.is_ok()) return s;
  }
  for (const memory::RowCopy& copy : pieces_[piece].out) {
    if (Status s = device_.copy_from_host(stream, copy); !s.is_ok()) return s;
  }
  return {};
}

std::vector<DevicePlan::Cut> DevicePlan::cuts() const {
  const std::vector<Call>& calls = batch_->calls;
  std::vector<Cut> all;
  for (std::size_t i = 0; i < calls.size();) {
    const Call& call = calls[i];
    const std::size_t bytes = call.varying != nullptr ? 0 : vector_bytes(call, ranks_);
    if (goes_by_windows(call)) {
      cut(i++, windows_->half_bytes / (bytes / call.count), {Way::kIntoWindows, Way::kOutOfWindows}, &all);
    } else if (bytes > kPieceBytes) {
      cut(i++, std::max<std::size_t>(1, kPieceBytes / (bytes / call.count)), {Way::kHost}, &all);
    } else {
      all.push_back(call.varying != nullptr ? Cut{i, 1, 0, 0} : short_calls(i));
      i += all.back().calls;
    }
  }
  if (!batch_->transfers.empty()) all.push_back({});
  return all;
}

void DevicePlan::cut(std::size_t i, std::size_t each, std::initializer_list<Way> ways, std::vector<Cut>* all) const {
  const std::size_t count = batch_->calls[i].count;
  for (std::size_t at = 0; at < count; at += each) {
    for (const Way way : ways) all->push_back({i, 1, at, std::min(each, count - at), way});
  }
}

// The choice depends only on values that are the same on all ranks.
bool DevicePlan::goes_by_windows(const Call& call) const {
  return windows_ != nullptr && runs_directly(call.collective) && has_data(call.collective) && call.custom == nullptr &&
         call.varying == nullptr && vector_bytes(call, ranks_) >= windows_->least_bytes;
}

// As many calls as fit into one piece.
DevicePlan::Cut DevicePlan::short_calls(std::size_t first) const {
  Cut cut{first, 0, 0, 0};
  for (std::size_t bytes = 0; first + cut.calls < batch_->calls.size() && cut.calls < kMostCalls; ++cut.calls) {
    const Call& call = batch_->calls[first + cut.calls];
    if (call.varying != nullptr || goes_by_windows(call)) break;
    bytes += vector_bytes(call, ranks_);
    if (bytes > kPieceBytes) break;
  }
  return cut;
}

void DevicePlan::fill(const Cut& cut, Room& room, Piece* piece) const {
  piece->in.clear();
  piece->out.clear();
  piece->calls.clear();
  piece->transfers.clear();
  piece->work.clear();
  piece->operators.clear();
  piece->counts.clear();
  for (std::size_t i = cut.call; i < cut.call + cut.calls; ++i) {
    const Call& call = batch_->calls[i];
    if (call.varying != nullptr) {
      add_varying(call, room, piece);
    } else if (cut.way != Way::kHost) {
      add_by_windows(call, cut, piece);
    } else {
      add(call, cut.begin, cut.count != 0 ? cut.count : call.count, room, piece);
    }
  }
  if (cut.calls > 0) return;
  for (const Transfer& transfer : batch_->transfers) add_transfer(transfer, room, piece);
}

// Adds elements [begin, begin + count) of each of the call's blocks.
void DevicePlan::add(const Call& call, std::size_t begin, std::size_t count, Room& room, Piece* piece) const {
  Call& host = piece->calls.emplace_back(call);
  if (!has_data(call.collective)) return;
  const CollectiveInfo& info = info_of(call.collective);
  const std::size_t element = element_bytes_of(call);
  host.count = count;
  host.whole_count = call.count;
  const auto stage = [&](const void* buffer, Holds holds, std::vector<memory::RowCopy>* copies) -> std::byte* {
    if (count == 0 || !has_any(holds, rank_, call.root)) return nullptr;
    std::byte* const place = room.take(blocks_in(holds, call.collective, ranks_) * count * element);
    copies->push_back(rows(call, buffer, holds, begin, count, place));
    return place;
  };
  host.send = stage(call.send, info.input, &piece->in);
  host.recv = stage(call.recv, info.output, &piece->out);
  take_scalar(&host, room, piece);
}

memory::RowCopy DevicePlan::rows(const Call& call, const void* buffer, Holds holds, std::size_t begin,
                                 std::size_t count, std::byte* base) const {
  const std::size_t element = element_bytes_of(call);
  return {base,
          count * element,
          bytes_at(buffer) + begin * element,
          call.count * element,
          count * element,
          blocks_in(holds, call.collective, ranks_)};
}

// The ranks rendezvous when all inputs are in the windows, and again when all outputs are.
void DevicePlan::add_by_windows(const Call& call, const Cut& cut, Piece* piece) const {
  Call& host = piece->calls.emplace_back(call);
  host.whole_count = call.count;
  host.barrier_only = true;
  const CollectiveInfo& info = info_of(call.collective);
  std::byte* const window = windows_->memory[static_cast<std::size_t>(rank_)];
  if (cut.way == Way::kIntoWindows) {
    if (has_any(info.input, rank_, call.root)) {
      piece->in.push_back(rows(call, call.send, info.input, cut.begin, cut.count, window));
    }
    piece->work.push_back(rendezvous_->part_by_windows(call, cut.count, rank_));
  } else if (has_any(info.output, rank_, call.root)) {
    piece->out.push_back(rows(call, call.recv, info.output, cut.begin, cut.count, window + windows_->half_bytes));
  }
}

// At the host, blocks are contiguous. The gaps between them in the device's memory are not touched.
void DevicePlan::add_varying(const Call& call, Room& room, Piece* piece) const {
  Call& host = piece->calls.emplace_back(call);
  const CollectiveInfo& info = info_of(call.collective);
  VaryingCounts& counts = *piece->counts.emplace_back(std::make_unique<VaryingCounts>(*call.varying));
  counts.send.displacements = counts.recv.displacements = nullptr;
  host.varying = &counts;
  VaryingBlocks from;
  VaryingBlocks to;
  from.lay_out(call, ranks_, rank_);
  to.lay_out(host, ranks_, rank_);
  const auto stage = [&](const void* buffer, schedule::Buffer which, Holds holds,
                         std::vector<memory::RowCopy>* copies) -> std::byte* {
    const bool own = holds == Holds::kOwnBlock;
    const std::size_t bytes = own ? from.own(which).size : to.extent(which);
    if (bytes == 0 || !has_any(holds, rank_, call.root)) return nullptr;
    std::byte* const place = room.take(bytes);
    const auto copy = [&](std::size_t at_host, std::size_t at_device, std::size_t size) {
      if (size > 0) copies->push_back({place + at_host, size, bytes_at(buffer) + at_device, size, size, 1});
    };
    if (own) {
      copy(0, 0, bytes);
      return place;
    }
    const schedule::ByteRange* const of_device = from.table().places[static_cast<std::size_t>(which)];
    const schedule::ByteRange* const of_host = to.table().places[static_cast<std::size_t>(which)];
    for (int r = 0; r < ranks_; ++r) copy(of_host[r].begin, of_device[r].begin, of_device[r].size);
    return place;
  };
  host.send = stage(call.send, schedule::Buffer::kInput, info.input, &piece->in);
  host.recv = stage(call.recv, schedule::Buffer::kOutput, info.output, &piece->out);
  take_scalar(&host, room, piece);
}

void DevicePlan::add_transfer(const Transfer& transfer, Room& room, Piece* piece) const {
  Transfer& host = piece->transfers.emplace_back(transfer);
  const std::size_t bytes = transfer.count * size_of(transfer.type, transfer.opaque);
  if (bytes == 0) return;
  std::byte* const place = room.take(bytes);
  host.buffer = place;
  (transfer.sends ? piece->in : piece->out).push_back({place, bytes, bytes_at(transfer.buffer), bytes, bytes, 1});
}

// A scalar that is read when the operation runs may also be in the device's memory: the host reads its own copy.
void DevicePlan::take_scalar(Call* call, Room& room, Piece* piece) const {
  if (call->op != ReduceOp::kPreMulSum || call->custom == nullptr || call->custom->scalar == nullptr) return;
  using Owner = memory::CudaDevice::Owner;
  const Owner owner = device_.owner_of(call->custom->scalar);
  if (owner == Owner::kUnknown || owner == Owner::kHostPinned) return;
  const std::size_t bytes = size_of(call->custom->type);
  std::byte* const place = room.take(bytes);
  piece->in.push_back({place, bytes, bytes_at(call->custom->scalar), bytes, bytes, 1});
  CustomOperator& own = *piece->operators.emplace_back(std::make_unique<CustomOperator>());
  own.kind = call->custom->kind;
  own.type = call->custom->type;
  own.scalar = place;
  call->custom = &own;
}

DeviceRun::DeviceRun(std::shared_ptr<const DevicePlan> plan, std::int64_t timeout_ms)
    : plan_(std::move(plan)), timeout_ns_(timeout_ms * 1'000'000) {}

Result<DeviceRun::State> DeviceRun::advance(HostPart* part, std::int64_t now_ns) {
  const DeviceChannel& channel = plan_->channel();
  if (stopped_) return State::kDone;
  if (std::exchange(on_host_, false)) {
    // After the last piece the stream continues after the batch: from then on nothing of the batch is touched.
    if (run_ + 1 == plan_->pieces().size()) plan_->ended();
    channel.store(DeviceChannel::Word::kRun, plan_->first() + static_cast<std::uint32_t>(++run_));
  }
  if (run_ == plan_->pieces().size()) return State::kDone;
  const std::uint32_t wanted = plan_->first() + static_cast<std::uint32_t>(run_) + 1;
  if (!DeviceChannel::reached(channel.load(DeviceChannel::Word::kEntered), wanted)) {
    if (waits_ns_ == 0) waits_ns_ = now_ns;
    if (now_ns - waits_ns_ <= timeout_ns_) return State::kWaits;
    return Status::timeout(fmt::format("the device has copied nothing for {} ms", timeout_ns_ / 1'000'000));
  }
  waits_ns_ = 0;
  *part = plan_->pieces()[run_].part();
  on_host_ = true;
  return State::kHost;
}

// If the batch was run, the stream may already have reached later work that reuses the words.
void DeviceRun::end() noexcept {
  if (run_ == plan_->pieces().size()) return;
  plan_->ended();
  plan_->let_go();
}

}  // namespace tutti::internal
