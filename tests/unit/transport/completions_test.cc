// Completions of several links in one queue: which link gets them, the room that they need, and which thread they wake.
// The device and the library are tables of functions, with a model behind them that has queues as the verbs interface
// describes them; real ones are in tests/rdma_vm.
#include "transport/verbs/completions.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "catch_compat.h"
#include "os/unique_fd.h"

using namespace tutti::internal;
using namespace tutti::internal::transport::verbs;

namespace {

struct PeerConnection {
  ibv_comp_channel channel{};
  std::deque<ibv_cq*> events;
};

struct Queue {
  ibv_cq cq{};
  PeerConnection* channel = nullptr;
  int room = 0;
  bool armed = false;
  int asked = 0;  // to signal
  int events = 0;
  int acknowledged = 0;
  std::deque<ibv_wc> completions;
};

// The state of the device; `fault` must be empty at the end.
struct Model {
  ibv_context context{};
  std::vector<std::unique_ptr<Queue>> queues;
  std::vector<std::unique_ptr<PeerConnection>> channels;
  std::optional<ibv_async_event> report;
  bool resizes = true;
  int most_entries = 1 << 20;
  const char* fault = "";
};
Model* model = nullptr;

Queue& queue_of(ibv_cq* cq) {
  for (const auto& queue : model->queues) {
    if (&queue->cq == cq) return *queue;
  }
  throw std::runtime_error("a queue that was destroyed");
}

PeerConnection& channel_of(ibv_comp_channel* channel) {
  for (const auto& one : model->channels) {
    if (&one->channel == channel) return *one;
  }
  throw std::runtime_error("a channel that was destroyed");
}

void signal(Queue& queue) {
  queue.armed = false;
  ++queue.events;
  queue.channel->events.push_back(&queue.cq);
  (void)::eventfd_write(queue.channel->channel.fd, 1);
}

int poll_queue(ibv_cq* cq, int most, ibv_wc* completions) {
  Queue& queue = queue_of(cq);
  int n = 0;
  for (; n < most && !queue.completions.empty(); ++n) {
    completions[n] = queue.completions.front();
    queue.completions.pop_front();
  }
  return n;
}

int take_event(ibv_comp_channel* channel, ibv_cq** cq, void** context) {
  PeerConnection& from = channel_of(channel);
  if (from.events.empty()) return errno = EAGAIN, -1;
  *cq = from.events.front();
  *context = (*cq)->cq_context;
  from.events.pop_front();
  eventfd_t value = 0;
  if (from.events.empty()) (void)::eventfd_read(channel->fd, &value);
  return 0;
}

void add_queue_functions(Library* l) {
  l->create_cq = [](ibv_context* context, int entries, void* user, ibv_comp_channel* channel, int) -> ibv_cq* {
    if (entries > model->most_entries) return errno = EINVAL, nullptr;
    auto queue = std::make_unique<Queue>();
    queue->cq.context = context;
    queue->cq.cq_context = user;
    queue->cq.cqe = queue->room = entries;
    queue->channel = &channel_of(channel);
    model->queues.push_back(std::move(queue));
    return &model->queues.back()->cq;
  };
  l->resize_cq = [](ibv_cq* cq, int entries) {
    if (!model->resizes) return EOPNOTSUPP;
    if (entries > model->most_entries) return EINVAL;
    cq->cqe = queue_of(cq).room = entries;
    return 0;
  };
  l->destroy_cq = [](ibv_cq* cq) {
    const Queue& queue = queue_of(cq);
    if (queue.events != queue.acknowledged) model->fault = "an event was not acknowledged";
    std::erase_if(model->queues, [&](const auto& one) { return one.get() == &queue; });
    return 0;
  };
}

Library fake_library() {
  Library l;
  add_queue_functions(&l);
  l.close_device = [](ibv_context*) { return 0; };
  l.create_comp_channel = [](ibv_context* context) {
    auto channel = std::make_unique<PeerConnection>();
    channel->channel.context = context;
    channel->channel.fd = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    model->channels.push_back(std::move(channel));
    return &model->channels.back()->channel;
  };
  l.destroy_comp_channel = [](ibv_comp_channel* channel) {
    ::close(channel->fd);
    std::erase_if(model->channels, [&](const auto& one) { return &one->channel == channel; });
    return 0;
  };
  l.get_cq_event = take_event;
  l.ack_cq_events = [](ibv_cq* cq, unsigned n) { queue_of(cq).acknowledged += static_cast<int>(n); };
  l.get_async_event = [](ibv_context*, ibv_async_event* event) {
    if (!model->report) return errno = EAGAIN, -1;
    *event = *std::exchange(model->report, {});
    return 0;
  };
  l.ack_async_event = [](ibv_async_event*) {};
  l.event_text = [](ibv_event_type) { return "what the test says"; };
  return l;
}

class Taker final : public CompletionTaker {
 public:
  explicit Taker(Completions& all, int socket = -1) : name(all.add(*this)), all_(all), socket_(socket) {}
  ~Taker() override { all_.remove(name); }
  void take(const ibv_wc&, const WorkId& id) override { taken.push_back(id.index); }
  void read_socket() override {
    ++reads;
    all_.unwatch(socket_);
  }
  std::vector<int> taken;
  int reads = 0;
  const std::uint32_t name;

 private:
  Completions& all_;
  const int socket_;
};

bool readable(int fd) {
  pollfd one{fd, POLLIN, 0};
  return ::poll(&one, 1, 0) == 1;
}

}  // namespace

namespace tutti::internal::transport::verbs {

struct DeviceFake {
  static std::unique_ptr<Device> make(const Library& library, ibv_context* context) {
    std::unique_ptr<Device> device(new Device);
    device->library_ = &library;
    device->port_.device = "fake0";
    device->context_ = context;
    device->own_context_ = Owned<ibv_context>(context, library.close_device);
    return device;
  }
};

}  // namespace tutti::internal::transport::verbs

namespace {

struct Rig {
  Rig() {
    model = &state;
    state.context.ops.poll_cq = poll_queue;
    state.context.ops.req_notify_cq = [](ibv_cq* cq, int) {
      queue_of(cq).armed = true;
      ++queue_of(cq).asked;
      return 0;
    };
    device = DeviceFake::make(library, &state.context);
    completions.emplace();
  }
  Rig(const Rig&) = delete;
  Rig& operator=(const Rig&) = delete;
  ~Rig() {
    completions.reset();
    CHECK(state.queues.empty());
    CHECK(state.channels.empty());
    CHECK(std::string(state.fault) == "");
  }

  CompletionQueue& reserve(int entries) {
    auto queue = completions->reserve(*device, 0, entries);
    REQUIRE(queue.is_ok());
    return **queue;
  }
  // Completes work of a link.
  void complete(CompletionQueue& queue, std::uint32_t name, int index) {
    Queue& q = queue_of(queue.queue());
    if (static_cast<int>(q.completions.size()) == q.room) state.fault = "the queue overflows";
    ibv_wc completion{};
    completion.wr_id = WorkId{WorkId::kPlain, 0, static_cast<std::uint8_t>(index), 0, name}.pack();
    q.completions.push_back(completion);
    if (q.armed) signal(q);
  }

  Model state;
  const Library library = fake_library();
  std::unique_ptr<Device> device;
  std::optional<Completions> completions;
};

using Indices = std::vector<int>;

}  // namespace

TEST_CASE("a work id is what was packed") {
  const WorkId id{WorkId::kReceive, 63, 255, 65535, 0xfedcba98};
  const WorkId other{WorkId::kAdvertisementLine, 5, 31, 129, 7};
  for (const WorkId& one : {id, other}) {
    const WorkId again = WorkId::unpack(one.pack());
    CHECK(again.kind == one.kind);
    CHECK(again.pair == one.pair);
    CHECK(again.index == one.index);
    CHECK(again.posted == one.posted);
    CHECK(again.taker == one.taker);
  }
}

TEST_CASE("each link gets its own completions in order, whichever link polls") {
  Rig rig;
  Taker a(*rig.completions);
  Taker b(*rig.completions);
  CompletionQueue& queue = rig.reserve(100);
  REQUIRE(&rig.reserve(100) == &queue);
  Indices all;
  for (int i = 0; i < 200; ++i) {
    rig.complete(queue, i % 2 == 0 ? a.name : b.name, i);
    all.push_back(i);
  }
  // A look ends, even if more completes meanwhile.
  REQUIRE(queue.poll().is_ok());
  CHECK(a.taken.size() + b.taken.size() == 128);
  REQUIRE(queue.poll().is_ok());
  Indices merged;
  for (std::size_t i = 0; i < 100; ++i) {
    merged.push_back(a.taken[i]);
    merged.push_back(b.taken[i]);
  }
  CHECK(merged == all);
}

TEST_CASE("completions of an ended link do not go to its successor") {
  Rig rig;
  CompletionQueue& queue = rig.reserve(10);
  Taker stays(*rig.completions);
  std::optional<Taker> ends(std::in_place, *rig.completions);
  const std::uint32_t old = ends->name;
  rig.complete(queue, old, 1);
  rig.complete(queue, stays.name, 2);
  ends.reset();
  Taker next(*rig.completions);
  CHECK(next.name != old);
  rig.complete(queue, next.name, 3);
  REQUIRE(queue.poll().is_ok());
  CHECK(next.taken == Indices{3});
  CHECK(stays.taken == Indices{2});
  // However often an entry is reused.
  for (int i = 0; i < 5000; ++i) {
    const Taker another(*rig.completions);
    REQUIRE(another.name != next.name);
    REQUIRE(another.name != stays.name);
    REQUIRE(another.name != old);
  }
}

TEST_CASE("completions: the names of ended links are not given again, nor is their memory kept") {
  Rig rig;
  std::set<std::uint32_t> names;
  for (int i = 0; i < 20'000; ++i) {
    const Taker one(*rig.completions);
    const Taker other(*rig.completions);
    REQUIRE(names.insert(one.name).second);
    REQUIRE(names.insert(other.name).second);
  }
}

TEST_CASE("a queue grows with its links") {
  Rig rig;
  CompletionQueue& queue = rig.reserve(10);
  for (int links = 2; links <= 20; ++links) {
    CHECK(&rig.reserve(10) == &queue);
    CHECK(queue_of(queue.queue()).room >= links * 10);
  }
  CHECK(rig.state.queues.size() == 1);
  CHECK(rig.state.channels.size() == 1);
}

TEST_CASE("a queue grows to the device's limit, and then there is another one") {
  Rig rig;
  rig.state.most_entries = 30;
  CompletionQueue& queue = rig.reserve(10);
  CHECK(&rig.reserve(10) == &queue);
  CHECK(&rig.reserve(10) == &queue);
  CHECK(queue_of(queue.queue()).room == 30);
  CHECK(&rig.reserve(10) != &queue);
  CHECK(rig.state.channels.size() == 1);
  CHECK_FALSE(rig.completions->reserve(*rig.device, 0, 31).is_ok());
}

TEST_CASE("if queues cannot grow, each further one has as much room as all before it") {
  Rig rig;
  rig.state.resizes = false;
  for (int links = 1; links <= 64; ++links) (void)rig.reserve(10);
  CHECK(rig.state.queues.size() == 7);
  CHECK(rig.state.channels.size() == 1);
}

TEST_CASE("other links can use the room of ended links, and no queue overflows") {
  Rig rig;
  rig.state.resizes = GENERATE(true, false);
  CompletionQueue& queue = rig.reserve(10);
  Taker stays(*rig.completions);
  std::size_t expected = 0;
  for (int round = 0; round < 50; ++round) {
    CompletionQueue& second = rig.reserve(10);
    Taker ends(*rig.completions);
    // All completions that it may leave behind, which no link takes; the other link continues meanwhile, as far as
    // possible.
    for (int i = 0; i < 10; ++i) rig.complete(second, ends.name, i);
    if (&second == &queue || expected < 10) {
      rig.complete(queue, stays.name, round);
      ++expected;
    }
    second.release(10);
  }
  REQUIRE(queue.poll().is_ok());
  CHECK(stays.taken.size() == expected);
  CHECK(rig.state.queues.size() <= 2);
  int room = 0;
  for (const auto& one : rig.state.queues) room += one->room;
  CHECK(room <= 20);
}

TEST_CASE("a completion on an armed queue wakes, once") {
  Rig rig;
  Taker a(*rig.completions);
  CompletionQueue& queue = rig.reserve(10);
  const int fd = rig.completions->wait_fd();
  REQUIRE(fd >= 0);
  rig.completions->arm(queue);
  // The device has a request already.
  rig.completions->arm(queue);
  CHECK(queue_of(queue.queue()).asked == 1);
  CHECK_FALSE(readable(fd));
  rig.complete(queue, a.name, 1);
  rig.complete(queue, a.name, 2);
  CHECK(readable(fd));
  rig.completions->disarm();
  CHECK_FALSE(readable(fd));
  rig.completions->arm(queue);
  CHECK(queue_of(queue.queue()).asked == 2);
  rig.complete(queue, a.name, 3);
  CHECK(readable(fd));
  // Arming takes the signalled events.
  rig.completions->arm(queue);
  CHECK_FALSE(readable(fd));
  CHECK(queue_of(queue.queue()).asked == 3);
}

TEST_CASE("no thread sleeps over completions that another link's poll has passed on") {
  Rig rig;
  Taker a(*rig.completions);
  Taker b(*rig.completions);
  CompletionQueue& queue = rig.reserve(10);
  (void)rig.reserve(10);
  // Like Link::arm(), of a and of b.
  const auto arm = [&] {
    rig.completions->arm(queue);
    REQUIRE(queue.poll().is_ok());
    return rig.completions->quiet();
  };
  CHECK(arm());
  CHECK(arm());
  // After a's look, before b's.
  CHECK(arm());
  rig.complete(queue, a.name, 1);
  CHECK_FALSE(arm());
  CHECK(a.taken == Indices{1});
  CHECK(arm());
  CHECK(arm());
  // Also those that another look takes in between.
  rig.complete(queue, b.name, 2);
  REQUIRE(queue.poll().is_ok());
  CHECK_FALSE(arm());
}

TEST_CASE("no thread sleeps over completions on one queue of a channel while another is armed") {
  Rig rig;
  rig.state.resizes = false;
  Taker a(*rig.completions);
  CompletionQueue& first = rig.reserve(10);
  CompletionQueue& second = rig.reserve(10);
  REQUIRE(&first != &second);
  // As both links go to sleep, one after the other.
  rig.completions->arm(first);
  REQUIRE(first.poll().is_ok());
  CHECK(rig.completions->quiet());
  rig.complete(first, a.name, 1);
  rig.completions->arm(second);
  REQUIRE(second.poll().is_ok());
  const bool sleeps = rig.completions->quiet();
  CHECK((!sleeps || readable(rig.completions->wait_fd())));
  CHECK(a.taken.size() == (sleeps ? 0 : 1));
}

TEST_CASE("events of several queues on one channel are those of their queues") {
  Rig rig;
  rig.state.resizes = false;
  Taker a(*rig.completions);
  CompletionQueue& first = rig.reserve(10);
  CompletionQueue& second = rig.reserve(10);
  REQUIRE(&first != &second);
  rig.completions->arm(first);
  rig.completions->arm(second);
  rig.complete(second, a.name, 1);
  rig.completions->disarm();
  rig.completions->arm(first);
  rig.completions->arm(second);
  CHECK(queue_of(first.queue()).asked == 1);
  CHECK(queue_of(second.queue()).asked == 2);
}

TEST_CASE("a peer that leaves wakes, until its link has heard of it") {
  Rig rig;
  (void)rig.reserve(10);
  int fds[20];
  std::vector<std::unique_ptr<Taker>> takers;
  for (int i = 0; i < 20; i += 2) {
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds + i) == 0);
    takers.push_back(std::make_unique<Taker>(*rig.completions, fds[i]));
    REQUIRE(rig.completions->watch(fds[i], takers.back()->name).is_ok());
  }
  const int fd = rig.completions->wait_fd();
  rig.completions->disarm();
  CHECK_FALSE(readable(fd));
  for (int i = 0; i < 20; i += 2) ::close(fds[i + 1]);
  CHECK(readable(fd));
  rig.completions->disarm();
  CHECK_FALSE(readable(fd));
  for (const auto& taker : takers) CHECK(taker->reads == 1);
  for (int i = 0; i < 20; i += 2) ::close(fds[i]);
}

TEST_CASE("a queue whose completions the device has lost is broken, and no other") {
  Rig rig;
  rig.state.resizes = false;
  const CompletionQueue& first = rig.reserve(10);
  const CompletionQueue& second = rig.reserve(10);
  ibv_async_event event{};
  event.event_type = IBV_EVENT_CQ_ERR;
  event.element.cq = second.queue();
  rig.state.report = event;
  CHECK(rig.device->check_events().is_ok());
  CHECK(second.broken());
  CHECK_FALSE(first.broken());
  event.event_type = IBV_EVENT_DEVICE_FATAL;
  rig.state.report = event;
  CHECK(rig.device->check_events().message().find("gone or broken") != std::string::npos);
}
