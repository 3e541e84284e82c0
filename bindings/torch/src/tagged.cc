#include "tagged.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <optional>
#include <torch/csrc/distributed/c10d/Utils.hpp>
#include <utility>
#include <vector>

#include "run.h"
#include "shared_threads.h"

namespace tutti_torch {
namespace {

constexpr int kMostKeptMib = 1024;
constexpr std::size_t kMib = std::size_t{1} << 20;
constexpr std::size_t kHeaderWords = sizeof(MessageHeader) / sizeof(std::int64_t);

std::atomic<std::size_t> kept_bytes{0};  // of all groups

tuttiDataType_t type_of(const MessageHeader& header) {
  return static_cast<tuttiDataType_t>(header.type);
}

std::size_t bytes_in(const MessageHeader& header) {
  return static_cast<std::size_t>(header.count) * Moved{type_of(header), 1}.bytes();
}

std::string told_of(const MessageHeader& header) {
  return c10::str("tag ", header.tag, " (", bytes_in(header), " bytes)");
}

}  // namespace

Call send_with_header(const std::shared_ptr<MessageHeader>& header, Call message) {
  const Call first = [header](tuttiComm_t comm, void* stream) {
    return tuttiSend(header.get(), kHeaderWords, tuttiInt64, 1, comm, stream);
  };
  return [calls = std::vector<Call>{first, std::move(message)}](tuttiComm_t comm, void* stream) {
    return call_together(calls, comm, stream);
  };
}

std::size_t TaggedReceives::most_kept_bytes() {
  static const auto most =
      static_cast<std::size_t>(std::max(0, c10d::getCvarInt({"TORCH_TUTTI_KEPT_MIB"}, kMostKeptMib)));
  return most * kMib;
}

TaggedReceives::TaggedReceives(const std::shared_ptr<Channel>& channel, int sender,
                               const std::shared_ptr<TaggedReceives>& before)
    : channel_(channel), sender_(sender) {
  if (before == nullptr) return;
  const std::lock_guard<std::mutex> lock(before->mutex_);
  std::swap(kept_, before->kept_);
}

TaggedReceives::~TaggedReceives() {
  for (const Kept& one : kept_) kept_bytes -= bytes_in(one.header);
}

void TaggedReceives::begin(Wanted wanted) {
  channel_->look_for_refusals(wanted.flight);
  wanted.flight->set_running();
  std::optional<Kept> kept;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    kept = take_kept(wanted.header.tag);
    if (!kept) {
      wanted_.push_back(wanted);
      call_thread();
    }
  }
  if (kept) hand_over(wanted, *kept);
}

void TaggedReceives::start() {
  const std::lock_guard<std::mutex> lock(mutex_);
  call_thread();
}

// REQUIRES: the lock.
void TaggedReceives::call_thread() {
  if (running_ || wanted_.empty() || (channel_->comm() == nullptr && !channel_->has_ended())) return;
  SharedThreads::get().run([own = shared_from_this()] { own->receive_all(); });
  running_ = true;
}

void TaggedReceives::receive_all() {
  for (;;) {
    const tuttiComm_t comm = channel_->comm();
    if (comm == nullptr) return fail(tuttiInvalidUsage);
    if (!receive_one(comm)) return;
  }
}

bool TaggedReceives::receive_one(tuttiComm_t comm) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    running_ = !wanted_.empty();
    if (!running_) return false;
  }
  MessageHeader header;
  tuttiResult_t result = tuttiRecv(&header, kHeaderWords, tuttiInt64, 0, comm, nullptr);
  std::optional<Wanted> wanted;
  if (result == tuttiSuccess) {
    const std::lock_guard<std::mutex> lock(mutex_);
    wanted = take_wanted(header.tag);
  }
  const bool fits = wanted && wanted->header.count == header.count && wanted->header.type == header.type;
  at::Tensor bytes;
  if (result == tuttiSuccess && !fits) {
    const std::size_t size = bytes_in(header);
    if (!wanted && kept_bytes + size > most_kept_bytes()) {
      result = overflow(header, size);
    } else {
      bytes = at::empty({static_cast<std::int64_t>(size)}, at::kByte);
    }
  }
  if (result == tuttiSuccess) {
    void* const to = fits ? wanted->data : bytes.data_ptr();
    result = tuttiRecv(to, static_cast<std::size_t>(header.count), type_of(header), 0, comm, nullptr);
  }
  if (result != tuttiSuccess) {
    if (wanted) wanted->flight->settle(result);
    fail(result);
    return false;
  }
  channel_->count_message();
  if (fits) {
    wanted->flight->settle(tuttiSuccess);
  } else if (wanted) {
    hand_over(*wanted, {header, std::move(bytes)});
  } else {
    keep({header, std::move(bytes)});
  }
  return true;
}

// A receive of that tag may have come meanwhile.
void TaggedReceives::keep(Kept kept) {
  std::optional<Wanted> wanted;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    wanted = take_wanted(kept.header.tag);
    if (!wanted) {
      kept_bytes += bytes_in(kept.header);
      kept_.push_back(std::move(kept));
      return;
    }
  }
  hand_over(*wanted, kept);
}

// REQUIRES: the lock.
std::optional<TaggedReceives::Wanted> TaggedReceives::take_wanted(std::int64_t tag) {
  const auto found =
      std::find_if(wanted_.begin(), wanted_.end(), [&](const Wanted& one) { return one.header.tag == tag; });
  if (found == wanted_.end()) return std::nullopt;
  Wanted wanted = std::move(*found);
  wanted_.erase(found);
  return wanted;
}

// REQUIRES: the lock.
std::optional<TaggedReceives::Kept> TaggedReceives::take_kept(std::int64_t tag) {
  const auto found = std::find_if(kept_.begin(), kept_.end(), [&](const Kept& one) { return one.header.tag == tag; });
  if (found == kept_.end()) return std::nullopt;
  Kept kept = std::move(*found);
  kept_.erase(found);
  kept_bytes -= bytes_in(kept.header);
  return kept;
}

// The message is gone if the receive does not fit it, and the channel goes on.
void TaggedReceives::hand_over(const Wanted& wanted, const Kept& kept) const {
  const MessageHeader& header = kept.header;
  if (wanted.header.count == header.count && wanted.header.type == header.type) {
    if (header.count > 0) std::memcpy(wanted.data, kept.bytes.data_ptr(), bytes_in(header));
    return wanted.flight->settle(tuttiSuccess);
  }
  wanted.flight->settle_with(c10::str("rank ", sender_, " has sent a message with ", told_of(header),
                                      " of another type or size than this receive (", bytes_in(wanted.header),
                                      " bytes): pass a tensor of the sender's type and size"));
}

tuttiResult_t TaggedReceives::overflow(const MessageHeader& header, std::size_t bytes) {
  std::string waits;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const Wanted& one : wanted_) waits += (waits.empty() ? "" : ", ") + std::to_string(one.header.tag);
  }
  channel_->end_with(c10::str("rank ", sender_, " has sent a message with ", told_of(header),
                              ", and the receiver waits for tag ", waits, ": it keeps at most ", most_kept_bytes(),
                              " bytes of messages that no receive has asked for, and has ", kept_bytes.load(),
                              ". Receive in the order in which messages are sent, or set TORCH_TUTTI_KEPT_MIB to ",
                              (kept_bytes + bytes) / kMib + 1, " or more"));
  return tuttiAborted;
}

void TaggedReceives::fail(tuttiResult_t result) {
  std::list<Wanted> failed;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    running_ = false;
    std::swap(failed, wanted_);
  }
  for (const Wanted& one : failed) one.flight->settle(result);
}

}  // namespace tutti_torch
