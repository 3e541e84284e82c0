#include "transport/verbs/completions.h"

#include <fcntl.h>
#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace tutti::internal::transport::verbs {
namespace {

// Completions taken from one queue at a time, and at most per look.
constexpr int kBatch = 16;
constexpr int kMostPerLook = 8 * kBatch;
// The data of an event of the epoll set: a device's channel, or the taker that owns the socket.
constexpr std::uint64_t kOfChannel = std::uint64_t{1} << 63;

}  // namespace

Status CompletionQueue::create(ibv_comp_channel* channel, int entries) {
  const Library& library = device_.library();
  queue_ = {library.create_cq(device_.context(), entries, &broken_, channel, 0), library.destroy_cq};
  if (queue_.get() == nullptr) {
    const int error = errno;
    const Status why = Status::system("completion queue on " + device_.name(), error);
    return Status(why.code(), why.message() + locked_memory_hint(error));
  }
  capacity_ = std::max(entries, queue_->cqe);
  return {};
}

int CompletionQueue::take(int most) {
  std::array<ibv_wc, kBatch> completions;
  int taken = 0;
  for (int n = kBatch; n == kBatch && taken < most; taken += n) {
    n = ibv_poll_cq(queue_.get(), kBatch, completions.data());
    if (n < 0) return n;
    for (int i = 0; i < n; ++i) all_.hand_over(completions[static_cast<std::size_t>(i)]);
  }
  return taken;
}

Status CompletionQueue::poll() {
  if (take(kMostPerLook) >= 0) [[likely]]
    return {};
  return Status(Code::kSystemError, "polling for completions on " + device_.name());
}

bool CompletionQueue::reserve(int entries) {
  // Takes the present completions; more may arrive at the same time.
  if (leaving_ > 0 && take(capacity_) >= 0) leaving_ = 0;
  const int needed = used_ + leaving_ + entries;
  if (needed > capacity_ && !grow(needed)) return false;
  used_ += entries;
  return true;
}

void CompletionQueue::release(int entries) noexcept {
  used_ -= entries;
  leaving_ += entries;
}

bool CompletionQueue::grow(int needed) {
  for (const int wanted : {std::max(2 * capacity_, needed), needed}) {
    if (device_.library().resize_cq(queue_.get(), wanted) != 0) continue;
    capacity_ = std::max(wanted, queue_->cqe);
    armed_ = false;
    return true;
  }
  return false;
}

std::uint32_t Completions::add(CompletionTaker& taker) {
  if (free_.empty() && takers_.size() > kPlaceMask) reuse_names();
  if (free_.empty()) {
    const auto place = static_cast<std::uint32_t>(takers_.size());
    if (free_.capacity() <= place) free_.reserve(2 * takers_.size() + 1);  // so that remove() needs no memory
    takers_.push_back({&taker, place});
    return place;
  }
  Taker& at = takers_[free_.back()];
  free_.pop_back();
  at.taker = &taker;
  return at.name;
}

void Completions::remove(std::uint32_t taker) noexcept {
  Taker& at = takers_[taker & kPlaceMask];
  at.taker = nullptr;
  at.name += kPlaceMask + 1;
  // An entry whose names are used up stays empty: otherwise an old completion could be assigned to another link. With
  // 4096 names for each of 2^20 entries, that costs 16 bytes for each 4096 links that a communicator makes.
  if (at.name > kPlaceMask) free_.push_back(taker & kPlaceMask);
}

// After 2^32 links of the communicator (2^20 entries, each with 4096 names), names are reused. So no queue may hold a
// completion of a link that has ended. The queue pairs of such a link are destroyed, so this takes out its last
// completions. If a queue cannot be polled, it counts as broken, and its links fail.
void Completions::reuse_names() {
  for (const EventChannel& channel : channels_) {
    for (const auto& queue : channel.queues) {
      if (queue->take(queue->capacity_) < 0) queue->broken_.store(true, std::memory_order_relaxed);
    }
  }
  for (std::uint32_t place = 0; place <= kPlaceMask; ++place) {
    if (takers_[place].taker == nullptr) free_.push_back(place);
  }
}

void Completions::hand_over(const ibv_wc& completion) {
  const WorkId id = WorkId::unpack(completion.wr_id);
  const Taker& at = takers_[id.taker & kPlaceMask];
  if (at.taker == nullptr || at.name != id.taker) return;
  ++taken_;
  at.taker->take(completion, id);
}

Result<CompletionQueue*> Completions::reserve(Device& device, std::size_t index, int entries) {
  EventChannel& channel = channels_[index];
  if (channel.channel.get() == nullptr) {
    if (Status s = open(device, index); !s.is_ok()) return s;
  }
  int total = 0;
  for (const auto& queue : channel.queues) {
    if (queue->reserve(entries)) return queue.get();
    total += queue->capacity_;
  }
  std::unique_ptr<CompletionQueue> made(new CompletionQueue(*this, device, index));
  Status s = made->create(channel.channel.get(), std::max(total, entries));
  if (!s.is_ok() && total > entries) s = made->create(channel.channel.get(), entries);
  if (!s.is_ok()) return s;
  channel.queues.push_back(std::move(made));
  channel.queues.back()->used_ = entries;
  return channel.queues.back().get();
}

Status Completions::open(Device& device, std::size_t index) {
  const Library& library = device.library();
  Owned<ibv_comp_channel> made(library.create_comp_channel(device.context()), library.destroy_comp_channel);
  if (made.get() == nullptr) return Status::system("completion channel on " + device.name(), errno);
  const int flags = ::fcntl(made->fd, F_GETFL);
  if (flags < 0 || ::fcntl(made->fd, F_SETFL, flags | O_NONBLOCK) != 0) {
    return Status::system("completion channel on " + device.name(), errno);
  }
  if (Status s = add_to_set(made->fd, EPOLLIN, kOfChannel | index); !s.is_ok()) return s;
  channels_[index].device = &device;
  channels_[index].channel = std::move(made);
  return {};
}

Status Completions::add_to_set(int fd, std::uint32_t events, std::uint64_t data) {
  if (!epoll_.valid()) epoll_ = UniqueFd(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll_.valid()) return Status::system("epoll_create1", errno);
  epoll_event event{};
  event.events = events;
  event.data.u64 = data;
  return ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0 ? Status() : Status::system("epoll_ctl", errno);
}

Status Completions::watch(int socket, std::uint32_t taker) {
  return add_to_set(socket, EPOLLIN | EPOLLRDHUP, taker);
}

void Completions::unwatch(int socket) noexcept {
  (void)::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, socket, nullptr);
}

void Completions::arm(CompletionQueue& queue) {
  const EventChannel& channel = channels_[queue.index_];
  take_events(channel);
  // The events may include those of other queues, whose links have already polled and will not poll again.
  for (const auto& one : channel.queues) {
    if (std::exchange(one->armed_, true)) continue;
    (void)ibv_req_notify_cq(one->queue(), 0);
    if (one.get() != &queue) (void)one->poll();
  }
}

void Completions::disarm() {
  std::array<epoll_event, 8> events{};
  const auto most = static_cast<int>(events.size());
  int ready = most;
  for (std::size_t seen = 0; ready == most && seen <= takers_.size() + channels_.size(); seen += events.size()) {
    ready = ::epoll_wait(epoll_.get(), events.data(), most, 0);
    for (int i = 0; i < ready; ++i) {
      const std::uint64_t data = events[static_cast<std::size_t>(i)].data.u64;
      if ((data & kOfChannel) != 0) {
        take_events(channels_[data & ~kOfChannel]);
      } else if (const Taker& at = takers_[data & kPlaceMask]; at.taker != nullptr && at.name == data) {
        at.taker->read_socket();
      }
    }
  }
}

void Completions::take_events(const EventChannel& channel) {
  const Library& library = channel.device->library();
  ibv_cq* queue = nullptr;
  void* context = nullptr;
  while (library.get_cq_event(channel.channel.get(), &queue, &context) == 0) {
    library.ack_cq_events(queue, 1);
    for (const auto& one : channel.queues) {
      if (one->queue() == queue) one->armed_ = false;
    }
  }
}

}  // namespace tutti::internal::transport::verbs
