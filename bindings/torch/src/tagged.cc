#include "tagged.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <iterator>
#include <limits>
#include <optional>
#include <torch/csrc/distributed/c10d/Utils.hpp>
#include <utility>
#include <vector>

#include "run.h"
#include "shared_threads.h"

namespace tutti_torch {
namespace {

constexpr std::chrono::milliseconds kAfterCommunicator{300};
constexpr int kMostKeptMib = 1024;
constexpr std::size_t kMib = std::size_t{1} << 20;
constexpr std::size_t kHeaderWords = sizeof(MessageHeader) / sizeof(std::int64_t);

tuttiDataType_t type_of(const MessageHeader& header) {
  return static_cast<tuttiDataType_t>(header.type);
}

std::size_t bytes_in(const MessageHeader& header) {
  return static_cast<std::size_t>(header.count) * Moved{type_of(header), 1}.bytes();
}

// Whether a rank of this library can have sent it.
bool is_valid(const MessageHeader& header) {
  const bool known =
      (header.type >= 0 && header.type < tuttiNumTypes) || (header.type >= tuttiInt16 && header.type <= tuttiBool);
  return known && header.count >= 0 &&
         header.count <=
             std::numeric_limits<std::int64_t>::max() / static_cast<std::int64_t>(Moved{type_of(header), 1}.bytes());
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

std::atomic<std::size_t> KeptBytes::held_{0};

std::size_t KeptBytes::limit() {
  static const auto most =
      static_cast<std::size_t>(std::max(0, c10d::getCvarInt({"TORCH_TUTTI_KEPT_MIB"}, kMostKeptMib)));
  return most * kMib;
}

bool KeptBytes::take(std::size_t bytes) {
  const std::size_t most = limit();
  std::size_t now = held_;
  do {
    if (bytes > most || now > most - bytes) return false;
  } while (!held_.compare_exchange_weak(now, now + bytes));
  bytes_ = bytes;
  return true;
}

TaggedReceives::TaggedReceives(const std::shared_ptr<Channel>& channel, int sender, std::chrono::milliseconds timeout,
                               const std::shared_ptr<TaggedReceives>& before)
    : channel_(channel), sender_(sender), timeout_(timeout) {
  if (before == nullptr) return;
  const std::lock_guard<std::mutex> lock(before->mutex_);
  std::swap(kept_, before->kept_);
}

TaggedReceives::~TaggedReceives() = default;

void TaggedReceives::begin(Wanted wanted) {
  channel_->look_for_refusals(wanted.flight);
  wanted.flight->set_running();
  std::optional<Kept> kept;
  std::string why_not;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    kept = take_kept(wanted.header.tag);
    if (!kept) {
      wanted_.push_back(wanted);
      try {
        call_thread();
      } catch (const c10::Error& e) {
        why_not = e.what_without_backtrace();
        wanted_.pop_back();  // it must not take the message of a later receive
      }
    }
  }
  if (kept) hand_over(wanted, *kept);
  if (!why_not.empty()) wanted.flight->settle_with(why_not);
}

std::string TaggedReceives::why_not_received(const std::exception& e) const {
  return c10::str("messages of rank ", sender_, " cannot be received: ", e.what());
}

void TaggedReceives::start() {
  try {
    const std::lock_guard<std::mutex> lock(mutex_);
    call_thread();
  } catch (const std::exception& e) {
    fail(end_channel(why_not_received(e)));
  }
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
    try {
      if (!receive_one(comm)) return;
    } catch (const std::exception& e) {
      return fail(end_channel(why_not_received(e)));
    }
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
  Kept kept{header, {}, {}};
  if (result == tuttiSuccess && !fits) result = make_room(header, wanted, &kept);
  if (result == tuttiSuccess) {
    void* const to = fits ? wanted->data : kept.bytes.data_ptr();
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
    hand_over(*wanted, kept);
  } else {
    keep(std::move(kept));
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

std::string TaggedReceives::told_of_waiting(const std::optional<Wanted>& wanted) {
  if (wanted) return c10::str("a receive of ", bytes_in(wanted->header), " bytes, or of another type, waits for it");
  std::string tags;
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const Wanted& one : wanted_) tags += (tags.empty() ? "" : ", ") + std::to_string(one.header.tag);
  return "the receiver waits for tag " + tags;
}

tuttiResult_t TaggedReceives::make_room(const MessageHeader& header, const std::optional<Wanted>& wanted, Kept* room) {
  if (!is_valid(header)) {
    return end_channel(c10::str("rank ", sender_, " has sent a damaged header: tag ", header.tag, ", count ",
                                header.count, ", type ", header.type));
  }
  const std::size_t bytes = bytes_in(header);
  const std::string sent = c10::str("rank ", sender_, " has sent a message with ", told_of(header), ", and ");
  if (!room->share.take(bytes)) {
    const std::size_t in_use = KeptBytes::in_use();
    return end_channel(c10::str(sent, told_of_waiting(wanted), ". A process keeps at most ", KeptBytes::limit(),
                                " bytes of messages that no receive takes, and this one has ", in_use,
                                ". Receive in the order in which messages are sent, or set TORCH_TUTTI_KEPT_MIB to ",
                                in_use / kMib + bytes / kMib + 2, " or more"));
  }
  try {
    room->bytes = at::empty({static_cast<std::int64_t>(bytes)}, at::kByte);
  } catch (const std::exception&) {
    return end_channel(c10::str(sent, told_of_waiting(wanted),
                                ": there is no memory to keep it. Receive in the order in which messages are sent, or "
                                "set TORCH_TUTTI_KEPT_MIB to what the machine can keep"));
  }
  return tuttiSuccess;
}

tuttiResult_t TaggedReceives::end_channel(const std::string& why) {
  channel_->end_with(why);
  return tuttiAborted;
}

// The communicator's own timeout, which begins a moment earlier, has the better text of a silent sender. A receive
// whose message is on its way is not among the wanted ones: for that the communicator's timeout counts.
void TaggedReceives::fail_late() {
  const auto latest = Clock::now() - timeout_ - kAfterCommunicator;
  std::list<Wanted> late;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (auto one = wanted_.begin(); one != wanted_.end();) {
      const auto next = std::next(one);
      if (one->flight->begun() <= latest) late.splice(late.end(), wanted_, one);
      one = next;
    }
  }
  for (const Wanted& one : late) {
    one.flight->settle_with(c10::str(kTimedOut, "rank ", sender_, " has sent no message with tag ", one.header.tag,
                                     " for ", timeout_.count(), " ms"));
  }
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
