#include "device/buffers.h"

#include <fmt/core.h>

#include "memory/device_name.h"

namespace tutti::internal {
namespace {

using schedule::Buffer;

class BufferCheck {
 public:
  BufferCheck(int rank, int ranks, const memory::CudaDevice& device) : rank_(rank), ranks_(ranks), device_(device) {}

  [[nodiscard]] Status check(const Call& call) const {
    const CollectiveInfo& info = info_of(call.collective);
    if (!info.has_data || is_empty(call)) return {};
    VaryingBlocks blocks;
    if (call.varying != nullptr) blocks.lay_out(call, ranks_, rank_);
    const auto side = [&](const void* buffer, Buffer which, Holds holds) -> Status {
      if (!has_any(holds, rank_, call.root)) return {};
      return call.varying == nullptr ? reached(buffer, which) : check_blocks(blocks, buffer, which, holds);
    };
    if (Status s = side(call.send, Buffer::kInput, info.input); !s.is_ok()) return s;
    return side(call.recv, Buffer::kOutput, info.output);
  }
  [[nodiscard]] Status check(const Transfer& transfer) const {
    if (transfer.count == 0) return {};
    return reached(transfer.buffer, transfer.sends ? Buffer::kInput : Buffer::kOutput);
  }

 private:
  [[nodiscard]] Status check_blocks(const VaryingBlocks& blocks, const void* buffer, Buffer which, Holds holds) const {
    const auto* const bytes = static_cast<const std::byte*>(buffer);
    if (holds == Holds::kOwnBlock) return blocks.own(which).size == 0 ? Status() : reached(bytes, which);
    const schedule::ByteRange* const places = blocks.table().places[static_cast<std::size_t>(which)];
    for (int r = 0; r < ranks_; ++r) {
      if (places[r].size == 0) continue;
      if (Status s = reached(bytes + places[r].begin, which); !s.is_ok()) return s;
    }
    return {};
  }
  [[nodiscard]] Status reached(const void* address, Buffer which) const {
    if (device_.owner_of(address) != memory::CudaDevice::Owner::kUnknown) return {};
    return Status::invalid_argument(fmt::format("the {} buffer {} is not in memory that {} can access",
                                                which == Buffer::kInput ? "send" : "receive", address,
                                                memory::name_of_device(device_.ordinal())));
  }

  int rank_;
  int ranks_;
  const memory::CudaDevice& device_;
};

}  // namespace

Status check_device_buffers(const Batch& batch, int rank, int ranks, const memory::CudaDevice& device) {
  const BufferCheck buffers(rank, ranks, device);
  for (const Call& call : batch.calls) {
    if (Status s = buffers.check(call); !s.is_ok()) return s;
  }
  for (const Transfer& transfer : batch.transfers) {
    if (Status s = buffers.check(transfer); !s.is_ok()) return s;
  }
  return {};
}

}  // namespace tutti::internal
