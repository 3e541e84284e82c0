#include "memory/pinned_staging.h"

namespace tutti::internal::memory {

Result<std::unique_ptr<PinnedStaging>> PinnedStaging::make(const CudaDriver& driver, int ordinal, std::size_t bytes,
                                                           CudaDriver::Stream stream) {
  std::unique_ptr<PinnedStaging> staging(new PinnedStaging(driver));
  if (Status s = staging->prepare(ordinal, bytes, stream); !s.is_ok())
    return s.with_context("staging of device memory");
  return staging;
}

// What fails half-way is undone by the destructor.
Status PinnedStaging::prepare(int ordinal, std::size_t bytes, CudaDriver::Stream stream) {
  int device = -1;
  if (Status s = driver_.check(driver_.device_get(&device, ordinal), "finding the GPU"); !s.is_ok()) return s;
  if (Status s = driver_.check(driver_.retain_context(&context_, device), "using the GPU"); !s.is_ok()) return s;
  device_ = device;
  const CudaCurrent current(driver_, context_);
  void* memory = nullptr;
  // For all contexts, as the copies may run on a stream of another.
  if (Status s = driver_.check(driver_.host_alloc(&memory, bytes, CudaDriver::kHostPortable), "page-locked memory");
      !s.is_ok()) {
    return s;
  }
  memory_ = {static_cast<std::byte*>(memory), bytes};
  stream_ = stream;
  if (stream == nullptr) {
    // Not ordered with the default stream, which belongs to the application.
    const auto made = driver_.stream_create(&stream_, CudaDriver::kStreamNonBlocking);
    if (Status s = driver_.check(made, "making a stream"); !s.is_ok()) return s;
    own_stream_ = true;
  }
  for (CudaDriver::Event& event : events_) {
    const auto made = driver_.event_create(&event, CudaDriver::kEventDisableTiming);
    if (Status s = driver_.check(made, "making an event"); !s.is_ok()) return s;
  }
  return {};
}

PinnedStaging::~PinnedStaging() {
  if (device_ < 0) return;
  {
    const CudaCurrent current(driver_, context_);
    if (done_ != begun_) (void)driver_.stream_synchronize(stream_);
    for (const CudaDriver::Event event : events_) {
      if (event != nullptr) (void)driver_.event_destroy(event);
    }
    if (own_stream_) (void)driver_.stream_destroy(stream_);
    if (memory_.data() != nullptr) (void)driver_.host_free(memory_.data());
  }
  (void)driver_.release_context(device_);
}

Status PinnedStaging::from_device(std::size_t offset, const std::byte* device, std::size_t n, std::uint64_t* number) {
  return copy(reinterpret_cast<CudaDriver::Address>(memory_.data()) + offset,
              reinterpret_cast<CudaDriver::Address>(device), offset, n, number);
}

Status PinnedStaging::to_device(std::byte* device, std::size_t offset, std::size_t n, std::uint64_t* number) {
  return copy(reinterpret_cast<CudaDriver::Address>(device),
              reinterpret_cast<CudaDriver::Address>(memory_.data()) + offset, offset, n, number);
}

Status PinnedStaging::copy(CudaDriver::Address to, CudaDriver::Address from, std::size_t offset, std::size_t n,
                           std::uint64_t* number) {
  *number = 0;
  if (offset > memory_.size() || n > memory_.size() - offset)
    return Status::invalid_argument("a copy beyond the staging");
  std::uint64_t ended = 0;
  if (begun_ - done_ == kMostCopies) {
    if (Status s = done(&ended); !s.is_ok()) return s;
    if (begun_ - done_ == kMostCopies) return {};
  }
  const CudaCurrent current(driver_, context_);
  // Addresses are one space (unified addressing), so the driver knows which way to copy.
  if (Status s = driver_.check(driver_.copy_async(to, from, n, stream_), "copying device memory"); !s.is_ok()) return s;
  const auto recorded = driver_.event_record(events_[begun_ % kMostCopies], stream_);
  if (Status s = driver_.check(recorded, "copying device memory"); !s.is_ok()) {
    // Its end cannot be told from now on; the memory must not change hands before it.
    (void)driver_.stream_synchronize(stream_);
    return s;
  }
  *number = ++begun_;
  return {};
}

Status PinnedStaging::done(std::uint64_t* number) {
  while (done_ < begun_) {
    const auto state = driver_.event_query(events_[done_ % kMostCopies]);
    if (state == CudaDriver::kNotReady) break;
    if (Status s = driver_.check(state, "copying device memory"); !s.is_ok()) return s;
    ++done_;
  }
  *number = done_;
  return {};
}

}  // namespace tutti::internal::memory
