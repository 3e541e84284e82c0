#include "communicator/control_tree.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "communicator/call_ledger.h"
#include "communicator/control_messages.h"
#include "communicator/control_neighbour.h"
#include "communicator/rank_list.h"
#include "communicator/root_service.h"
#include "communicator/service_thread.h"
#include "net/frame.h"
#include "net/socket.h"

namespace tutti {
namespace {

using namespace control;  // NOLINT: the messages that this file exchanges

constexpr std::int64_t kFlushMs = 500;  // for the goodbye to leave
constexpr std::int64_t kLingerMs = 50;  // for the neighbours to close their side: normally microseconds

// The deadline passes everywhere at once, but the error should come from the rank that stands right
// above the culprit. So whoever is further away lets it speak first, by so much for each level.
constexpr std::int64_t kGraceMs = 100;

Deadline later(Deadline deadline, int levels) {
  const std::int64_t left_ms = deadline.left_ms(INT_MAX);
  return levels <= 0 ? deadline : Deadline::after_ms(left_ms + levels * kGraceMs);
}

// Used by one thread at a time: the initialising one, then the watching one. Only the command queue is
// shared.
class SocketTree final : public ControlTree {
 public:
  SocketTree(int rank, int ranks, std::vector<TreeNeighbour> neighbours);
  ~SocketTree() override;
  Result<std::vector<std::string>> all_gather(const std::string& mine, Deadline deadline) override;
  Status watch(std::shared_ptr<FailureState> failure) override;
  void announce_failure(const Status& status) override;
  void report_calls(std::vector<CallRecord> calls) override;
  void leave() override;

 private:
  void read_from(Neighbour* from);
  void handle(Neighbour* from, const std::string& frame);
  void lost(Neighbour* neighbour);
  void learn(const Notice& notice, const Neighbour* from);
  void learn_goodbye(int rank, Neighbour* from);
  void learn_calls(const Calls& calls);
  void pass_on_goodbyes();
  void flood(const std::string& frame, const Neighbour* except);
  void flush(Neighbour* neighbour);
  Status pump(const std::function<bool()>& finished, Deadline deadline);
  Status exchange(Parts* parts, Deadline deadline);
  Status too_late(const std::vector<int>& waited_for);

  void attempt(const std::function<void()>& speak) noexcept;
  void turn();
  void arm(Neighbour* neighbour);
  void obey();
  void speak_of(const Status& failure);
  void depart();
  void stop();
  void signal();
  [[nodiscard]] bool all_sent() const;

  const int rank_;
  const int ranks_;
  const pid_t owner_;  // a forked child must not speak for this process
  std::vector<Neighbour> neighbours_;
  std::shared_ptr<FailureState> failure_;  // null while initialising
  Status early_failure_;
  std::vector<int> early_departed_;
  // While this rank gathers it keeps the goodbyes that it hears: ranks that leave have all parts, and to
  // ranks below, which have not, it would look like leaving too early.
  bool gathering_ = false;
  std::vector<std::pair<int, Neighbour*>> goodbyes_;  // who, and from where
  bool any_notice_ = false;
  std::set<int> known_dead_;
  CallLedger ledger_;  // of this rank and those below it
  bool left_ = false;
  bool ending_ = false;  // the watching thread is to end

  UniqueFd epoll_;
  UniqueFd wake_;
  ServiceThread thread_;
  std::mutex mutex_;
  Status announcement_;                           // guarded by mutex_; the first
  std::vector<std::vector<CallRecord>> reports_;  // guarded by mutex_
  bool leaving_ = false;                          // guarded by mutex_
  bool stopping_ = false;                         // guarded by mutex_
};

SocketTree::SocketTree(int rank, int ranks, std::vector<TreeNeighbour> neighbours)
    : rank_(rank), ranks_(ranks), owner_(::getpid()) {
  for (TreeNeighbour& neighbour : neighbours) {
    net::set_keep_alive(neighbour.socket.get());
    neighbours_.emplace_back(std::move(neighbour));
  }
}

SocketTree::~SocketTree() {
  if (owner_ == ::getpid()) {
    stop();
  } else {
    thread_.detach();
  }
}

// ---- What comes from the neighbours -------------------------------------------------------------

void SocketTree::read_from(Neighbour* from) {
  while (from->socket.valid()) {
    Result<net::FrameReader::Progress> progress = from->reader.read(from->socket.get());
    if (progress.is_ok() && *progress == net::FrameReader::Progress::kBlocked) return;
    if (!progress.is_ok() || *progress == net::FrameReader::Progress::kClosed) return lost(from);
    handle(from, from->reader.take());
  }
}

void SocketTree::handle(Neighbour* from, const std::string& frame) {
  net::Unpacker unpacker(frame);
  const auto kind = static_cast<Kind>(unpacker.number<std::uint8_t>());
  if (kind == Kind::kGather || kind == Kind::kAll) {
    Parts parts;
    if ((kind == Kind::kAll) == from->is_parent && unpack_parts(&unpacker, ranks_, &parts)) {
      from->inbox.push_back(std::move(parts));
      return;
    }
  } else if (kind == Kind::kNotice) {
    Notice notice;
    if (unpack_notice(&unpacker, &notice)) return learn(notice, from);
  } else if (kind == Kind::kCalls) {
    Calls calls;
    if (!from->is_parent && unpack_calls(&unpacker, ranks_, &calls)) return learn_calls(calls);
  } else if (kind == Kind::kGoodbye) {
    const auto rank = unpacker.number<std::int32_t>();
    if (unpacker.complete()) return learn_goodbye(rank, from);
  }
  learn({Code::kInternalError, rank_, -1, from->who + " sent a damaged control message"}, nullptr);
}

// The connection has ended. After a goodbye that is as it should be.
void SocketTree::lost(Neighbour* neighbour) {
  if (!neighbour->socket.valid()) return;
  neighbour->socket.reset();
  if (neighbour->said_goodbye || left_) return;
  learn({Code::kRemoteError, rank_, neighbour->rank, neighbour->who + " died: connection lost"}, nullptr);
}

// After the first notice only further deaths are news.
void SocketTree::learn(const Notice& notice, const Neighbour* from) {
  const bool new_death = notice.failed >= 0 && known_dead_.insert(notice.failed).second;
  if (any_notice_ && !new_death) return;
  any_notice_ = true;
  if (failure_) {
    failure_->fail(Status(notice.code, notice.text));
  } else if (early_failure_.is_ok()) {
    early_failure_ = Status(notice.code, notice.text);
  }
  flood(pack_notice(notice), from);
}

void SocketTree::learn_goodbye(int rank, Neighbour* from) {
  if (failure_) {
    failure_->set_departed(rank);
  } else {
    early_departed_.push_back(rank);
  }
  goodbyes_.emplace_back(rank, from);
  pass_on_goodbyes();
  if (rank != from->rank) return;
  from->said_goodbye = true;
  // Closing at once lets the leaving rank go at once. It reads nothing any more.
  from->socket.reset();
}

// Upwards only as far as it is news, so that a thousand ranks that wait for one cost one message each.
void SocketTree::learn_calls(const Calls& calls) {
  bool news = false;
  const Status known = ledger_.add(calls.rank, calls.records, &news);
  if (!known.is_ok()) return learn({known.code(), rank_, -1, known.message()}, nullptr);
  for (Neighbour& neighbour : neighbours_) {
    if (!news || !neighbour.is_parent || !neighbour.socket.valid()) continue;
    neighbour.writer.queue(pack_calls(calls));
    flush(&neighbour);
  }
}

void SocketTree::pass_on_goodbyes() {
  if (gathering_) return;
  for (const auto& [rank, from] : std::exchange(goodbyes_, {})) flood(pack_goodbye(rank), from);
}

void SocketTree::flood(const std::string& frame, const Neighbour* except) {
  for (Neighbour& neighbour : neighbours_) {
    if (&neighbour == except || !neighbour.socket.valid()) continue;
    neighbour.writer.queue(frame);
    flush(&neighbour);
  }
}

// A broken connection is left for reading to discover, since a last message may still be in it.
void SocketTree::flush(Neighbour* neighbour) {
  const Status sent = neighbour->writer.flush(neighbour->socket.get());
  if (!sent.is_ok()) neighbour->writer = net::FrameWriter();
  if (epoll_.valid()) arm(neighbour);
}

// ---- Initialisation -----------------------------------------------------------------------------

// Moves messages until `finished` and all is sent, or a failure is known.
Status SocketTree::pump(const std::function<bool()>& finished, Deadline deadline) {
  net::PollSet set;
  while (early_failure_.is_ok()) {
    if (finished() && all_sent()) return {};
    if (deadline.passed()) return Status::timeout("");
    set.clear(1000);
    set.wake_at(deadline);
    std::vector<std::pair<Neighbour*, std::size_t>> entries;
    for (Neighbour& neighbour : neighbours_) {
      if (!neighbour.socket.valid()) continue;
      const int events = neighbour.writer.empty() ? POLLIN : POLLIN | POLLOUT;
      entries.emplace_back(&neighbour, set.add(neighbour.socket.get(), static_cast<short>(events)));
    }
    if (Status s = set.wait(); !s.is_ok()) return s;
    for (const auto& [neighbour, entry] : entries) {
      if (set.ready(entry) == 0 || !neighbour->socket.valid()) continue;
      if ((set.ready(entry) & POLLOUT) != 0) flush(neighbour);
      if ((set.ready(entry) & ~POLLOUT) != 0) read_from(neighbour);
    }
    if (early_failure_.is_ok() && !early_departed_.empty() && !finished()) {
      return Status::remote(list_ranks({early_departed_.front()}) + " left during the initialisation");
    }
  }
  return early_failure_;
}

// Up the tree, then down again.
Status SocketTree::exchange(Parts* parts, Deadline deadline) {
  Neighbour* parent = nullptr;
  std::vector<Neighbour*> children;
  for (Neighbour& neighbour : neighbours_) {
    if (neighbour.is_parent) parent = &neighbour;
    if (!neighbour.is_parent) children.push_back(&neighbour);
  }
  gathering_ = true;
  const auto has_mail = [](const Neighbour* neighbour) { return !neighbour->inbox.empty(); };
  const Deadline for_children = later(deadline, levels_below(rank_, ranks_) - 1);
  const Deadline for_parent = later(deadline, levels_below(0, ranks_) + 1);
  Status s = pump([&] { return std::all_of(children.begin(), children.end(), has_mail); }, for_children);
  if (s.code() == Code::kTimeout) {
    std::vector<int> silent;
    for (const Neighbour* child : children) {
      if (child->inbox.empty()) silent.push_back(child->rank);
    }
    return too_late(silent);
  }
  if (!s.is_ok()) return s;
  for (Neighbour* child : children) {
    parts->merge(child->inbox.front());
    child->inbox.pop_front();
  }
  if (parent != nullptr) {
    parent->writer.queue(pack_parts(Kind::kGather, *parts));
    s = pump([&] { return has_mail(parent); }, for_parent);
    if (s.code() == Code::kTimeout) return too_late({parent->rank});
    if (!s.is_ok()) return s;
    *parts = std::move(parent->inbox.front());
    parent->inbox.pop_front();
  }
  const std::string all = children.empty() ? "" : pack_parts(Kind::kAll, *parts);
  for (Neighbour* child : children) child->writer.queue(all);
  gathering_ = false;
  pass_on_goodbyes();
  s = pump([] { return true; }, deadline);
  return s.code() == Code::kTimeout ? too_late(tree_children(rank_, ranks_)) : s;
}

Status SocketTree::too_late(const std::vector<int>& waited_for) {
  if (!early_failure_.is_ok()) return early_failure_;
  return Status::timeout("timed out during the initialisation, waiting for " + list_ranks(waited_for));
}

Result<std::vector<std::string>> SocketTree::all_gather(const std::string& mine, Deadline deadline) {
  Parts parts;
  parts[rank_] = mine;
  Status s = exchange(&parts, deadline);
  if (s.is_ok() && static_cast<int>(parts.size()) != ranks_) s = Status::internal("a rank is missing in all_gather");
  if (!s.is_ok()) {
    announce_failure(s);
    return s;
  }
  std::vector<std::string> result;
  result.reserve(parts.size());
  for (auto& [rank, bytes] : parts) result.push_back(std::move(bytes));
  return result;
}

// ---- The watching thread ------------------------------------------------------------------------

Status SocketTree::watch(std::shared_ptr<FailureState> failure) {
  wake_ = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake_.valid()) return Status::system("eventfd", errno);
  UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll.valid()) return Status::system("epoll_create1", errno);
  epoll_event wake_event{};
  wake_event.events = EPOLLIN;
  wake_event.data.ptr = nullptr;
  if (::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, wake_.get(), &wake_event) != 0) return Status::system("epoll_ctl", errno);
  for (Neighbour& neighbour : neighbours_) {
    if (!neighbour.socket.valid()) continue;
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.ptr = &neighbour;
    if (::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, neighbour.socket.get(), &event) != 0) {
      return Status::system("epoll_ctl", errno);
    }
  }
  failure_ = std::move(failure);
  if (!early_failure_.is_ok()) failure_->fail(early_failure_);
  for (const int rank : early_departed_) failure_->set_departed(rank);
  epoll_ = std::move(epoll);
  return thread_.start([this] {
    while (!ending_) attempt([this] { turn(); });
  });
}

// Who has no memory to speak must look dead to the neighbours: nobody is to wait for it.
void SocketTree::attempt(const std::function<void()>& speak) noexcept {
  const Status s = guarded([&] { return speak(), Status(); });
  if (s.is_ok()) return;
  if (failure_) failure_->fail(s);
  for (Neighbour& neighbour : neighbours_) neighbour.socket.reset();
}

void SocketTree::turn() {
  constexpr int kEvents = 8;
  epoll_event events[kEvents];
  const int ready = ::epoll_wait(epoll_.get(), events, kEvents, -1);
  if (ready < 0 && errno != EINTR) {
    ending_ = true;
    failure_->fail(Status::system("the control connections cannot be watched: epoll_wait", errno));
    return;
  }
  for (int i = 0; i < ready; ++i) {
    auto* neighbour = static_cast<Neighbour*>(events[i].data.ptr);
    if (neighbour == nullptr || !neighbour->socket.valid()) continue;
    if ((events[i].events & EPOLLOUT) != 0) flush(neighbour);
    if ((events[i].events & ~static_cast<std::uint32_t>(EPOLLOUT)) != 0) read_from(neighbour);
  }
  obey();
}

// Waits for the socket to take more exactly while there is more.
void SocketTree::arm(Neighbour* neighbour) {
  const bool wanted = !neighbour->writer.empty();
  if (wanted == neighbour->write_armed || !neighbour->socket.valid()) return;
  epoll_event event{};
  event.events = wanted ? EPOLLIN | EPOLLOUT : EPOLLIN;
  event.data.ptr = neighbour;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, neighbour->socket.get(), &event) == 0) neighbour->write_armed = wanted;
}

// Does what other threads have asked for.
void SocketTree::obey() {
  std::uint64_t count = 0;
  if (::read(wake_.get(), &count, sizeof count) < 0) return;  // nobody has asked
  Status announcement;
  std::vector<std::vector<CallRecord>> reports;
  bool leaving = false;
  {
    const std::lock_guard lock(mutex_);
    announcement = announcement_;
    reports.swap(reports_);
    leaving = leaving_;
    ending_ = leaving_ || stopping_;
  }
  if (!announcement.is_ok()) speak_of(announcement);
  for (std::vector<CallRecord>& calls : reports) learn_calls({rank_, std::move(calls)});
  if (leaving) depart();
}

// Once: later, all know of a failure already.
void SocketTree::speak_of(const Status& failure) {
  if (std::exchange(any_notice_, true)) return;
  flood(pack_notice({failure.code(), rank_, -1, "rank " + std::to_string(rank_) + ": " + failure.message()}), nullptr);
}

// Says goodbye. The peers' answers are read to the end before the sockets close: closing a socket with
// unread bytes resets it, which may overtake the goodbye on its way.
void SocketTree::depart() {
  left_ = true;
  epoll_.reset();
  flood(pack_goodbye(rank_), nullptr);
  const Deadline flushed = Deadline::after_ms(kFlushMs);
  const Deadline closed = Deadline::after_ms(kLingerMs);
  net::PollSet set;
  for (;;) {
    bool open = false;
    set.clear(static_cast<int>(kLingerMs));
    for (Neighbour& neighbour : neighbours_) {
      if (!neighbour.socket.valid()) continue;
      if (neighbour.writer.empty()) ::shutdown(neighbour.socket.get(), SHUT_WR);
      set.add(neighbour.socket.get(), static_cast<short>(neighbour.writer.empty() ? POLLIN : POLLIN | POLLOUT));
      open = true;
    }
    set.wake_at(all_sent() ? closed : flushed);
    if (!open || (all_sent() ? closed : flushed).passed() || !set.wait().is_ok()) break;
    for (Neighbour& neighbour : neighbours_) {
      if (neighbour.socket.valid()) flush(&neighbour);
      read_from(&neighbour);
    }
  }
  for (Neighbour& neighbour : neighbours_) neighbour.socket.reset();
}

// ---- From other threads -------------------------------------------------------------------------

void SocketTree::announce_failure(const Status& status) {
  if (owner_ != ::getpid() || status.is_ok()) return;
  if (thread_.running()) {
    {
      const std::lock_guard lock(mutex_);
      if (announcement_.is_ok()) announcement_ = status;
    }
    signal();
    return;
  }
  if (!left_) attempt([&] { speak_of(status); });
}

void SocketTree::report_calls(std::vector<CallRecord> calls) {
  if (owner_ != ::getpid() || !thread_.running()) return;
  {
    const std::lock_guard lock(mutex_);
    reports_.push_back(std::move(calls));
  }
  signal();
}

void SocketTree::leave() {
  if (owner_ != ::getpid()) return;
  if (!thread_.running()) {
    if (!left_) attempt([this] { depart(); });
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    leaving_ = true;
  }
  signal();
  thread_.join();
}

void SocketTree::stop() {
  if (!thread_.running()) return;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  signal();
  thread_.join();
}

void SocketTree::signal() {
  const std::uint64_t one = 1;
  // Fails only if the counter is full: the thread is awake then.
  if (::write(wake_.get(), &one, sizeof one) < 0) return;
}

bool SocketTree::all_sent() const {
  return std::all_of(neighbours_.begin(), neighbours_.end(),
                     [](const Neighbour& neighbour) { return !neighbour.socket.valid() || neighbour.writer.empty(); });
}

}  // namespace

std::unique_ptr<ControlTree> make_socket_tree(int rank, int ranks, std::vector<TreeNeighbour> neighbours) {
  return std::make_unique<SocketTree>(rank, ranks, std::move(neighbours));
}

}  // namespace tutti
