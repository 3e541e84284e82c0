// Collectives that a kernel runs on the buffers of all ranks, which are in one device (device/direct.h): one launch for
// all ranks if they launch together (rendezvous.h), and one launch of each rank in graphs.
#include <fmt/core.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "device/backend.h"
#include "executor/fingerprint.h"
#include "memory/device_name.h"

namespace tutti::internal {
namespace {

bool same_call(const Call& a, const Call& b) {
  return a.collective == b.collective && a.count == b.count && a.root == b.root && a.type == b.type &&
         a.opaque.bytes == b.opaque.bytes && a.op == b.op;
}

bool can_run_directly(std::span<DeviceSubmission* const> all) {
  const std::vector<Call>& first = all.front()->batch->calls;
  return std::all_of(all.begin(), all.end(), [&](const DeviceSubmission* one) {
    const std::vector<Call>& calls = one->batch->calls;
    return one->direct && std::equal(first.begin(), first.end(), calls.begin(), calls.end(), same_call);
  });
}

// For all ranks, without the buffers.
DirectCall kernels_call(const Call& call, int ranks) {
  DirectCall made = direct_call(call.collective, call.type, call.op, call.root, ranks);
  made.count = call.count;
  made.element_bytes = element_bytes_of(call);
  return made;
}

}  // namespace

bool DeviceBackend::may_run_directly(const Call& call) const {
  return internal::runs_directly(call.collective) && open_->kernels() != nullptr && ranks() <= kMostDirectRanks &&
         !owner_.is_forced() && call.custom == nullptr && call.varying == nullptr;
}

// Kernels cannot access memory of other devices, and do not combine elements that are not aligned.
Status DeviceBackend::check_direct_buffers(const Call& call) const {
  const CollectiveInfo& info = info_of(call.collective);
  if (!info.has_data) return {};
  const auto check = [&](const void* buffer, Holds holds, const char* name) -> Status {
    using Owner = memory::CudaDevice::Owner;
    if (!has_any(holds, rank(), call.root)) return {};
    const Owner owner = open_->device().owner_of(buffer);
    if (owner == Owner::kUnknown || owner == Owner::kOtherDevice) {
      return Status::invalid_argument(fmt::format("the {} buffer {} is not in memory that kernels on {} can access",
                                                  name, buffer, memory::name_of_device(open_->device().ordinal())));
    }
    if (!reduces(call.collective) || reinterpret_cast<std::uintptr_t>(buffer) % element_bytes_of(call) == 0) return {};
    return Status::invalid_argument(
        fmt::format("{} is not an address of elements of {} bytes ({} buffer)", buffer, element_bytes_of(call), name));
  };
  if (Status s = check(call.send, info.input, "send"); !s.is_ok()) return s;
  return check(call.recv, info.output, "receive");
}

Status DeviceBackend::open_windows(const DeviceRendezvous::AllGather& all_gather) {
  auto opened = rendezvous_->open_windows(rank(), ranks_.peers, open_->kernels(), all_gather);
  if (opened.is_ok()) has_windows_ = *opened;
  return opened.status();
}

void DeviceBackend::bring(DeviceSubmission* own) {
  const DeviceRendezvous::Launch launch = rendezvous_->bring(rank(), own);
  if (launch.all.empty()) return;
  // Also if this throws: the other ranks wait for it.
  const struct Finish {
    DeviceRendezvous& rendezvous;
    ~Finish() { rendezvous.finish(); }
  } finish{*rendezvous_};
  if (launch.one_device && can_run_directly(launch.all)) {
    const Status status = guarded([&] { return submit_directly(launch.all); });
    for (DeviceSubmission* const one : launch.all) one->status = status;
  } else {
    submit_staged(launch.all);
  }
}

// In a stream of the first rank, after the work in the other ranks' streams.
Status DeviceBackend::submit_directly(std::span<DeviceSubmission* const> all) {
  DeviceBackend& first = *all.front()->backend;
  const memory::CudaDevice& device = first.open_->device();
  const memory::CudaCurrent current = device.use();
  if (Status s = current.status(); !s.is_ok()) return s;
  const auto stream = memory::CudaDevice::stream_of(all.front()->streams.front());
  const auto others = all.subspan(1);
  for (DeviceSubmission* const one : all) {
    if (Status s = one->backend->gather_streams(*one); !s.is_ok()) return s;
  }
  for (DeviceSubmission* const one : others) {
    const auto event = one->backend->open_->event();
    if (Status s = device.record(memory::CudaDevice::stream_of(one->streams.front()), event); !s.is_ok()) return s;
    if (Status s = device.wait_for(stream, event); !s.is_ok()) return s;
  }
  const std::vector<Call>& calls = all.front()->batch->calls;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    if (is_empty(calls[i]) || !has_data(calls[i].collective)) continue;
    DirectCall call = kernels_call(calls[i], first.ranks());
    for (std::size_t r = 0; r < all.size(); ++r) {
      const Call& own = all[r]->batch->calls[i];
      call.in[r] = static_cast<const std::byte*>(own.send);
      call.out[r] = static_cast<std::byte*>(own.recv);
    }
    if (Status s = first.open_->kernels()->launch(call, stream); !s.is_ok()) return s;
  }
  const auto end = first.open_->direct_event();
  if (Status s = device.record(stream, end); !s.is_ok()) return s;
  for (DeviceSubmission* const one : all) {
    OpenDevice& own = *one->backend->open_;
    if (one != all.front()) {
      if (Status s = device.wait_for(memory::CudaDevice::stream_of(one->streams.front()), end); !s.is_ok()) return s;
      if (Status s = device.record(memory::CudaDevice::stream_of(one->streams.front()), own.direct_event()); !s.is_ok())
        return s;
    }
    for (void* const other : std::span(one->streams).subspan(1)) {
      if (Status s = device.wait_for(memory::CudaDevice::stream_of(other), own.direct_event()); !s.is_ok()) return s;
    }
    own.set_last_direct(true);
  }
  return {};
}

Result<bool> DeviceBackend::can_capture_directly() {
  if (open_->kernels() == nullptr || !rendezvous_->is_one_device(failure_)) return false;
  return rendezvous_->open_mailboxes(*open_->kernels());
}

// The choice of calls for a kernel depends only on the calls, so that all ranks decide alike. The calls between two
// such calls are captured together.
Status DeviceBackend::capture(const std::shared_ptr<const Batch>& batch, std::uint64_t capture, void* stream) {
  const std::vector<Call>& calls = batch->calls;
  const auto direct = [&](const Call& call) { return !is_empty(call) && may_run_directly(call); };
  if (std::none_of(calls.begin(), calls.end(), direct)) return capture_staged(batch, capture, stream);
  auto can = can_capture_directly();
  if (!can.is_ok()) return can.status();
  if (!*can) return capture_staged(batch, capture, stream);
  // Checks for refusals first: then nothing of the batch is in the graph yet.
  for (const Call& call : calls) {
    if (!direct(call)) continue;
    if (Status s = check_direct_buffers(call); !s.is_ok()) return s;
  }
  auto rest = std::make_shared<Batch>();
  const auto capture_rest = [&]() -> Status {
    if (rest->calls.empty() && rest->transfers.empty()) return {};
    rest->counts = batch->counts;
    rest->operators = batch->operators;
    return capture_staged(std::exchange(rest, std::make_shared<Batch>()), capture, stream);
  };
  for (const Call& call : calls) {
    if (!direct(call)) {
      rest->calls.push_back(call);
      continue;
    }
    if (Status s = capture_rest(); !s.is_ok()) return s;
    if (Status s = capture_directly(call, capture, stream); !s.is_ok()) return s;
  }
  rest->transfers = batch->transfers;
  return capture_rest();
}

Status DeviceBackend::capture_directly(const Call& call, std::uint64_t capture, void* stream) {
  using Kept = std::shared_ptr<DeviceRendezvous>;
  const memory::CudaDevice& device = open_->device();
  const auto at = memory::CudaDevice::stream_of(stream);
  const bool first = open_->begins_capture(capture);
  auto kept = std::make_unique<Kept>(rendezvous_);
  const auto forget = [](void* memory) { delete static_cast<Kept*>(memory); };
  if (Status s = device.give_to_graph(at, kept.release(), forget); !s.is_ok()) return s;
  if (!first) {
    if (Status s = device.wait_for(at, open_->captured_event()); !s.is_ok()) return s;
  }
  DirectCall made = kernels_call(call, ranks());
  const auto r = static_cast<std::size_t>(rank());
  made.in[r] = static_cast<const std::byte*>(call.send);
  made.out[r] = static_cast<std::byte*>(call.recv);
  made.timeout_ns = static_cast<std::uint64_t>(timeout_ms_) * 1'000'000;
  made.fingerprint = executor::make_fingerprint(0, call.collective, call.type, call.op, call.root,
                                                executor::count_with_element_bytes(call.opaque, call.count));
  made.number = captured_calls_++;
  rendezvous_->add_mailboxes(&made, rank());
  const DirectKernels& kernels = *open_->kernels();
  const unsigned columns = std::min(kernels.useful_columns(made), rendezvous_->columns());
  if (Status s = kernels.launch(made, at, columns); !s.is_ok()) return s;
  if (Status s = device.record(at, open_->captured_event()); !s.is_ok()) return s;
  open_->set_captured(capture);
  return {};
}

void DeviceBackend::look_at_reports() {
  if (failure_.failed()) return;
  const DirectReport report = rendezvous_->report(rank());
  switch (report.outcome) {
    case DirectOutcome::kGoes: return;
    case DirectOutcome::kMismatch:
      (void)owner_.fail("graph", Status::mismatch(fmt::format(
                                     "rank {} runs its captured operation number {}, but rank {} runs a different one. "
                                     "Capture the same calls on all ranks, and launch graphs in the same order",
                                     rank(), report.number + 1, report.peer)));
      return;
    case DirectOutcome::kTimeout:
      (void)owner_.fail("graph", Status::timeout(fmt::format(
                                     "rank {} has not reached captured operation number {} of rank {} for {} ms",
                                     report.peer, report.number + 1, rank(), timeout_ms_)));
      return;
    case DirectOutcome::kStopped:
      (void)owner_.fail("graph", Status::mismatch(fmt::format(
                                     "a rank has left, but rank {} still runs its captured operation number {}", rank(),
                                     report.number + 1)));
      return;
  }
}

}  // namespace tutti::internal
