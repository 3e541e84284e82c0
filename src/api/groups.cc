// Groups, sends and receives of the C API.
#include "api/groups.h"

#include <fmt/core.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <span>
#include <utility>

#include "api/handles.h"
#include "api/operations.h"
#include "api/public_types.h"
#include "device/backend.h"
#include "streams/host_functions.h"

namespace tutti::internal::api {
namespace {

Status check(const Transfer& t, const Communicator& comm) {
  if (Status s = check_elements(t.type, t.opaque, t.count); !s.is_ok()) return s;
  if (t.peer < 0 || t.peer >= comm.ranks()) {
    return Status::invalid_argument(fmt::format("peer {} is not a rank of {}", t.peer, comm.ranks()));
  }
  if (t.count != 0 && t.buffer == nullptr) {
    return Status::invalid_argument(t.sends ? "sendbuff is NULL" : "recvbuff is NULL");
  }
  return {};
}

const char* name_of_call(const Transfer& t) {
  return t.sends ? "send" : "recv";
}

// A position in a stream: after its present entries, and before later ones.
class StreamTail {
 public:
  explicit StreamTail(std::shared_ptr<Stream> stream) : stream_(std::move(stream)), before_(stream_->last()) {}
  [[nodiscard]] const std::shared_ptr<Stream>& stream() const { return stream_; }
  [[nodiscard]] const std::shared_ptr<Completion>& before() const { return before_; }
  void add(const std::shared_ptr<Completion>& completion) { after_.push_back(completion); }
  // The added operations become the end of the stream.
  void attach() const {
    for (const auto& completion : after_) stream_->append_behind(before_, completion);
  }
  static std::shared_ptr<Completion> both(const std::shared_ptr<Completion>& a, const std::shared_ptr<Completion>& b) {
    if (a == nullptr || b == nullptr) return a == nullptr ? b : a;
    return Completion::both(a, b);
  }

 private:
  std::shared_ptr<Stream> stream_;
  std::shared_ptr<Completion> before_;
  std::vector<std::shared_ptr<Completion>> after_;
};

[[gnu::noinline]] Status enqueue(const Transfer& transfer, Communicator& comm, void* stream) {
  auto found = streams().find(number_of(stream));
  return found.is_ok() ? comm.enqueue(transfer, **found) : found.status();
}

// The common case of check(): to or from another rank.
bool plainly_valid(const Transfer& t, const Communicator& comm) {
  return has_plain_elements(t.type, t.count) && t.buffer != nullptr && t.peer != comm.rank() &&
         static_cast<unsigned>(t.peer) < static_cast<unsigned>(comm.ranks());
}

Status name_and_check(Transfer* transfer, Communicator& comm, tuttiDataType_t datatype) {
  Status status = name_datatype(transfer, comm, datatype);
  return status.is_ok() ? check(*transfer, comm) : status;
}

// The same for a transfer outside a group, which has no counterpart on this rank.
[[gnu::noinline]] Status name_and_check_alone(Transfer* transfer, Communicator& comm, tuttiDataType_t datatype) {
  Status status = name_and_check(transfer, comm, datatype);
  return status.is_ok() ? check_own({transfer, 1}, comm.rank()) : status;
}

tuttiResult_t submit(Transfer&& transfer, tuttiComm_t comm, void* stream, tuttiDataType_t datatype) noexcept try {
  if (InOperator::here()) [[unlikely]]
    return refuse_in_operator(name_of_call(transfer));
  if (GroupCalls* const group = current_group(); group != nullptr) [[unlikely]] {
    return defer(group, comm, stream, name_of_call(transfer), [&](Communicator& c, Batch* batch) {
      Transfer& kept = batch->transfers.emplace_back(transfer);
      return plainly_valid(transfer, c) ? Status() : name_and_check(&kept, c, datatype);
    });
  }
  const Operating operating(number_of(comm));
  if (!operating.status().is_ok()) [[unlikely]]
    return report_refused(operating.status().with_context(name_of_call(transfer)), comm);
  Communicator& c = *operating;
  Status status = plainly_valid(transfer, c) ? Status() : name_and_check_alone(&transfer, c, datatype);
  if (status.is_ok()) [[likely]] {
    if (c.device_backend() != nullptr) [[unlikely]]
      status = c.enqueue_in_stream(transfer, stream);
    else
      status = stream == nullptr ? c.run(std::span<const Transfer>(&transfer, 1)) : enqueue(transfer, c, stream);
    if (status.is_ok()) [[likely]]
      return tuttiSuccess;
  }
  return report_of(status, &c, name_of_call(transfer));
} catch (...) {
  return report(Status::of_exception());
}

using CommunicatorCalls = GroupCalls::CommunicatorCalls;

// Checks that nothing of it will be refused, as far as known.
Status check(const CommunicatorCalls& part, const Communicator& comm) {
  if (comm.failures().is_finalized()) return Status::invalid_usage("the communicator is finalized");
  if (Status s = check_own(part.batch->transfers, comm.rank()); !s.is_ok()) return s;
  for (const Call& call : part.batch->calls) {
    if (is_empty(call)) continue;
    if (Status s = comm.check_forced(call); !s.is_ok()) return s.with_context(name_of(call.collective));
  }
  if (!part.cuda_streams.empty()) {
    if (Status s = comm.device_backend()->check(*part.batch, part.cuda_streams); !s.is_ok()) return s;
  }
  return check_apart(part.batch->calls, comm.rank(), comm.ranks());
}

Status check(std::span<const CommunicatorCalls> parts) {
  for (const CommunicatorCalls& part : parts) {
    const Looking looking(part.comm);
    Status status = looking.status().is_ok() ? check(part, *looking.get()) : looking.status();
    if (!status.is_ok()) return status;
  }
  return {};
}

Status not_started(Status status) {
  return std::move(status).with_context("no call of the group was started");
}

Status run_alone(const CommunicatorCalls& part) {
  const Operating operating(part.comm);
  if (!operating.status().is_ok()) return not_started(operating.status());
  if (Status s = check(part, *operating); !s.is_ok()) return not_started(std::move(s));
  Status status = part.cuda_streams.empty() ? operating->run(part.batch)
                                            : operating->device_backend()->enqueue(part.batch, part.cuda_streams);
  if (!status.is_ok() && !is_refusal(status)) operating->failures().state().set_told();
  return status;
}

Status start(CommunicatorCalls* part, std::vector<StreamTail>* tails) {
  const Operating operating(part->comm);
  if (!operating.status().is_ok()) return operating.status();
  const auto for_own = [&](auto&& f) {
    for (StreamTail& tail : *tails) {
      if (std::find(part->streams.begin(), part->streams.end(), tail.stream()) != part->streams.end()) f(tail);
    }
  };
  std::shared_ptr<Completion> before;
  for_own([&](const StreamTail& tail) { before = StreamTail::both(before, tail.before()); });
  Status status = operating->enqueue(part->batch, std::move(before), &part->completion);
  if (part->completion != nullptr) for_own([&](StreamTail& tail) { tail.add(part->completion); });
  if (is_refusal(status)) operating->note_refusal(status);
  if (!status.is_ok() && !is_refusal(status)) operating->failures().state().set_told();
  return status;
}

// The calls of one part on a communicator with a device. The thread stays inside all of these communicators until the
// calls are in their streams, because ranks of this process fill their streams together.
class DevicePart {
 public:
  explicit DevicePart(const CommunicatorCalls& part) : operating_(part.comm) {
    if (!operating_.status().is_ok()) return;
    auto begun = operating_->device_backend()->begin(part.batch, part.cuda_streams);
    begun_ = begun.is_ok() ? std::move(*begun) : nullptr;
    refused_ = begun.status();
  }
  Status end() {
    if (!operating_.status().is_ok()) return operating_.status();
    Status queued = refused_.is_ok() ? operating_->device_backend()->end(begun_.get()) : refused_;
    if (!queued.is_ok() && !is_refusal(queued)) operating_->failures().state().set_told();
    return queued;
  }

 private:
  const OperatingBeside operating_;
  std::unique_ptr<DeviceSubmission> begun_;
  Status refused_;
};

// Communicators do not wait for each other, even if they share a stream: the progress engine runs the queue of each.
// *started: whether any part was started.
Status run(std::span<CommunicatorCalls> parts, bool* started) {
  if (parts.size() == 1 && parts.front().streams.empty()) return run_alone(parts.front());
  if (Status s = check(parts); !s.is_ok()) return not_started(std::move(s));
  if (HostFunctions::runs_here() &&
      std::any_of(parts.begin(), parts.end(), [](const CommunicatorCalls& p) { return p.waits; }))
    return not_started(HostFunctions::waits_here());
  *started = true;
  std::vector<StreamTail> tails;
  for (const CommunicatorCalls& part : parts) {
    for (const auto& stream : part.streams) {
      const bool known = std::any_of(tails.begin(), tails.end(), [&](const auto& t) { return t.stream() == stream; });
      if (!known) tails.emplace_back(stream);
    }
  }
  Status first;
  const auto note = [&](Status status) {
    if (first.is_ok()) first = std::move(status);
  };
  std::deque<DevicePart> device_parts;
  for (CommunicatorCalls& part : parts) {
    if (part.cuda_streams.empty()) {
      note(start(&part, &tails));
    } else {
      device_parts.emplace_back(part);
    }
  }
  for (DevicePart& part : device_parts) note(part.end());
  for (StreamTail& tail : tails) tail.attach();
  for (const CommunicatorCalls& part : parts) {
    if (part.waits && part.completion != nullptr) {
      (void)part.completion->wait_until_ended();
      note(part.completion->tell());
    }
  }
  return first;
}

// For a group that could not be started completely for lack of memory; its peers wait for it. Returns when no part of
// it runs any more, with the error of the first failed communicator, which may be older than `status`.
Status give_up(std::span<const CommunicatorCalls> parts, const Status& status) noexcept {
  Status first;
  for (const CommunicatorCalls& part : parts) {
    // Even the error for a destroyed communicator needs memory.
    static_cast<void>(guarded([&] {
      const Looking looking(part.comm);
      if (!looking.status().is_ok()) return Status();
      static_cast<void>(guarded([&] { return looking->fail("group", status); }));
      if (first.is_ok()) first = looking->async_error();
      return Status();
    }));
  }
  for (const CommunicatorCalls& part : parts) {
    if (part.completion != nullptr) static_cast<void>(guarded([&] { return part.completion->wait_until_ended(); }));
  }
  return first.is_ok() ? status : first;
}

// Reports to each communicator of the group that no call was started.
void tell(std::span<const CommunicatorCalls> parts, const Status& refused) noexcept {
  for (const CommunicatorCalls& part : parts) {
    static_cast<void>(guarded([&] {
      const Looking looking(part.comm);
      if (looking.status().is_ok()) looking->note_refusal(refused);
      return Status();
    }));
  }
}

Status run_or_give_up(GroupCalls& group) {
  bool gives_up = true;
  bool started = false;
  Status status = guarded([&] {
    Status result = group.refused().is_ok() ? run(group.parts(), &started) : not_started(group.refused());
    gives_up = !group.refused().is_ok() && !is_refusal(group.refused());
    return result;
  });
  if (gives_up) return give_up(group.parts(), status);
  if (!started && is_refusal(status)) tell(group.parts(), status);
  return status;
}

}  // namespace

GroupCalls::CommunicatorCalls& GroupCalls::find_or_add(std::uint64_t comm) {
  if (used_ == 1) index_.try_emplace(parts_[0].comm, 0);
  if (const auto known = index_.find(comm); known != index_.end()) return parts_[last_ = known->second];
  if (used_ == parts_.size()) parts_.emplace_back();
  CommunicatorCalls& part = parts_[used_];
  part.comm = comm;
  if (part.batch == nullptr) part.batch = std::make_shared<Batch>();
  if (used_ > 0) index_.try_emplace(comm, used_);
  return parts_[last_ = used_++];
}

std::size_t GroupCalls::calls_of(std::uint64_t comm) const {
  std::size_t calls = 0;
  for (const CommunicatorCalls& part : std::span(parts_).first(used_)) {
    if (part.comm == comm) calls += part.batch->calls.size() + part.batch->transfers.size();
  }
  return calls;
}

Status check_no_group(std::uint64_t comm) {
  const GroupCalls* const group = current_group();
  // If a call was refused, nothing of the group is started.
  const bool runs = group != nullptr && group->refused().is_ok();
  const std::size_t calls = runs ? group->calls_of(comm) : 0;
  if (calls == 0) return {};
  return Status::invalid_usage(
      fmt::format("{} of this communicator in an open group of this thread. Call tuttiGroupEnd first",
                  calls == 1 ? "there is a call" : fmt::format("there are {} calls", calls)));
}

void GroupCalls::clear() {
  constexpr std::size_t kMostKept = 256;
  parts_.resize(std::min(used_, std::size_t{4}));
  for (CommunicatorCalls& part : parts_) {
    const Batch& batch = *part.batch;
    // A queued batch is unused only when its completion says so.
    const bool over = (part.completion == nullptr && part.cuda_streams.empty()) || part.waits;
    const bool keeps =
        over && part.batch.use_count() == 1 && std::max(batch.calls.size(), batch.transfers.size()) <= kMostKept;
    // Member by member, so that the next group reuses the members' memory.
    part.comm = 0;
    if (keeps) {
      part.batch->clear();
    } else {
      part.batch = nullptr;
    }
    part.streams.clear();
    part.cuda_streams.clear();
    part.waits = false;
    part.completion = nullptr;
  }
  used_ = last_ = 0;
  index_.clear();
  depth_ = 0;
  refused_ = {};
}

}  // namespace tutti::internal::api

using tutti::internal::Status;
using tutti::internal::Transfer;
using tutti::internal::api::GroupCalls;
using tutti::internal::api::type_of;

tuttiResult_t tuttiSend(const void* sendbuff, size_t count, tuttiDataType_t datatype, int peer, tuttiComm_t comm,
                        void* stream) {
  return tutti::internal::api::submit(Transfer{true, const_cast<void*>(sendbuff), count, type_of(datatype), peer, {}},
                                      comm, stream, datatype);
}

tuttiResult_t tuttiRecv(void* recvbuff, size_t count, tuttiDataType_t datatype, int peer, tuttiComm_t comm,
                        void* stream) {
  return tutti::internal::api::submit(Transfer{false, recvbuff, count, type_of(datatype), peer, {}}, comm, stream,
                                      datatype);
}

tuttiResult_t tuttiGroupStart() {
  using namespace tutti::internal::api;  // NOLINT: this is the C face of that namespace
  return entry([&] {
    ThreadRecord* const record = this_thread();
    if (record == nullptr) return report(Status::out_of_memory());
    if (record->group == nullptr) {
      record->group = record->spare != nullptr ? std::exchange(record->spare, nullptr) : new GroupCalls;
    }
    record->group->start();
    return tuttiSuccess;
  });
}

tuttiResult_t tuttiGroupEnd() {
  using namespace tutti::internal::api;  // NOLINT: this is the C face of that namespace
  return entry_in_mode_of_caller([&] {
    GroupCalls* const group = current_group();
    if (group == nullptr) return report(Status::invalid_usage("tuttiGroupEnd without tuttiGroupStart"));
    if (!group->end()) return tuttiSuccess;
    std::unique_ptr<GroupCalls> whole(std::exchange(this_thread()->group, nullptr));
    Status status = run_or_give_up(*whole);
    whole->clear();
    delete std::exchange(this_thread()->spare,
                         whole.release());  // exists if a function that a group ran has made groups itself
    return report(status);
  });
}
