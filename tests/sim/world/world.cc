#include "sim/world/world.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

namespace tutti::internal::sim {
namespace {

constexpr std::int64_t kMs = 1'000'000;
constexpr std::int64_t kForever = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kCallNs =
    50;  // the duration of each call of the kernel: a loop that does not wait makes time pass
constexpr std::int64_t kFinishMs = std::int64_t{60} * 60 * 1000;
constexpr std::uint32_t kFirstHost = 10U << 24;  // 10.0.0.0/8
constexpr const char* kAtGate = "a gate";

constexpr int kFirstPid = 1 << 24;  // beyond all that are real
// Process-wide variables of the library remember times and threads of processes: each world begins after the last one,
// and no two worlds have a thread with the same number.
std::int64_t next_begin_ns = 1'000'000 * kMs;
int next_thread = 1;
constexpr int kMostReported = 24;  // threads

bool is_waiting(const Waiter& waiter) {
  return waiter.thread->epoch == waiter.epoch && waiter.thread->state == Thread::State::kBlocked;
}

}  // namespace

World::World(const WorldOptions& options)
    : options_(options), random_(options.seed), bytes_(options.seed), begin_ns_(next_begin_ns), now_ns_(next_begin_ns) {
  os::set_scheduler(this);
  os::replace_kernel(this);
}

World::~World() {
  if (!finished_) static_cast<void>(finish());
}

// ---- Processes ----------------------------------------------------------------------------------

Process* World::start(const std::string& name, std::function<void()> body, const Process* same_host) {
  const std::uint32_t host = same_host != nullptr ? same_host->host : kFirstHost + ++next_host_;
  Process& process = processes_.emplace_back();
  process.pid = kFirstPid + static_cast<int>(processes_.size());
  process.host = host;
  process.name = name;
  spawn(&process, std::move(body));
  return &process;
}

Thread* World::spawn(Process* process, std::function<void()> body) {
  Thread& thread = threads_.emplace_back();
  thread.number = next_thread++;
  thread.process = process;
  thread.fiber = std::make_unique<Fiber>(std::move(body));
  process->threads.push_back(&thread);
  make_runnable(&thread);
  return &thread;
}

void World::at_step(Process* process, std::uint64_t n, std::function<void()> action) {
  process->at_steps[process->steps + n] = std::move(action);
}

void World::after_ms(std::int64_t ms, std::function<void()> action) {
  at(now_ns_ + ms * kMs, std::move(action));
}

// Its descriptors close like at the end of a real process: the others notice that packet by packet.
void World::kill(Process* process) {
  if (std::exchange(process->dead, true)) return;
  for (Socket* const socket : process->sockets) {
    if (!socket->closed) end(socket);
  }
}

void World::break_connections(Process* process) {
  for (Socket* const socket : process->sockets) {
    if (socket->kind != Socket::Kind::kStream || !socket->connected || socket->closed) continue;
    for (Socket* const side : {socket, socket->peer}) {
      if (side == nullptr) continue;
      side->reset = true;
      ++side->generation;  // what is in flight is lost
      changed(side);
    }
  }
}

void World::stop(Process* process) {
  process->stopped = true;
}

void World::go_on(Process* process) {
  process->stopped = false;
  if (process->dead) return;
  for (Thread* const thread : std::exchange(process->held, {})) runnable_.push_back(thread);
}

void World::cut_off(Process* process) {
  cut_.try_emplace(process->host, now_ns_);
}

void World::reconnect(Process* process) {
  cut_.erase(process->host);
  for (const auto& arrives : std::exchange(kept_, {})) arrives();
}

bool World::finish() {
  for (Process& process : processes_) kill(&process);
  finishing_ = true;
  for (Process& process : processes_) {
    for (Thread* const thread : std::exchange(process.held, {})) runnable_.push_back(thread);
    for (Thread* const thread : process.threads) {
      if (thread->state == Thread::State::kBlocked && thread->where == kAtGate) wake(thread);
    }
    for (Socket* const socket : process.sockets) changed(socket);
  }
  const auto done = [](const Thread& thread) { return thread.state == Thread::State::kDone; };
  auto running = threads_.begin();
  const bool all = run_until(
      [&] {
        while (running != threads_.end() && done(*running)) ++running;
        return running == threads_.end();
      },
      kFinishMs);
  os::set_scheduler(nullptr);
  os::replace_kernel(nullptr);
  next_begin_ns = now_ns_ + 1'000'000 * kMs;
  finished_ = true;
  return all;
}

Traffic World::traffic() const {
  Traffic all;
  for (const Process& process : processes_) {
    all.sends += process.traffic.sends;
    all.bytes += process.traffic.bytes;
    all.received += process.traffic.received;
    all.connects += process.traffic.connects;
    all.accepts += process.traffic.accepts;
  }
  return all;
}

std::string World::report() const {
  std::string text = fmt::format("seed {}, {} ms", options_.seed, elapsed_ms());
  int reported = 0;
  for (const Thread& thread : threads_) {
    if (thread.state == Thread::State::kDone || ++reported > kMostReported) continue;
    const Process& process = *thread.process;
    text +=
        fmt::format("\n  {}, thread {}: {} after {} steps", process.name, thread.number, thread.where, process.steps);
    if (thread.until_ns != kForever) text += fmt::format(", until {} ms", (thread.until_ns - begin_ns_) / kMs);
    if (process.dead) text += " (killed)";
    if (process.stopped) text += " (stopped)";
  }
  if (reported > kMostReported) text += fmt::format("\n  and {} more threads", reported - kMostReported);
  return text;
}

// ---- Scheduling ---------------------------------------------------------------------------------

bool World::run_until(const std::function<bool()>& condition, std::int64_t limit_ms) {
  const std::int64_t limit_ns = now_ns_ + limit_ms * kMs;
  while (!condition()) {
    while (!events_.empty() && events_.front().at_ns <= now_ns_) static_cast<void>(advance(now_ns_));
    if (!runnable_.empty() && now_ns_ < limit_ns) {
      std::swap(runnable_[draw(runnable_.size())], runnable_.back());
      Thread* const next = runnable_.back();
      runnable_.pop_back();
      run(next);
    } else if (!advance(limit_ns)) {
      return condition();
    }
  }
  return true;
}

void World::run_for(std::int64_t ms) {
  static_cast<void>(run_until([] { return false; }, ms));
}

// Advances to the next event. False: there is none before the limit; then advances to the limit.
bool World::advance(std::int64_t limit_ns) {
  if (events_.empty() || events_.front().at_ns > limit_ns) {
    now_ns_ = std::max(now_ns_, limit_ns);
    return false;
  }
  std::pop_heap(events_.begin(), events_.end());
  const Event event = std::move(events_.back());
  events_.pop_back();
  now_ns_ = std::max(now_ns_, event.at_ns);
  if (Thread* const thread = event.waiter.thread; thread == nullptr) {
    event.action();
  } else if (is_waiting(event.waiter)) {
    thread->timed_out = true;
    wake(thread);
  }
  let_look_again();
  return true;
}

void World::at(std::int64_t at_ns, std::function<void()> action, Waiter waiter) {
  events_.push_back({at_ns, next_event_++, std::move(action), waiter});
  std::push_heap(events_.begin(), events_.end());
}

void World::run(Thread* thread) {
  Process* const process = thread->process;
  if ((process->stopped || process->dead) && !finishing_) {
    process->held.push_back(thread);
    return;
  }
  current_ = thread;
  thread->fiber->resume();
  current_ = nullptr;
  if (thread->fiber->finished()) {
    thread->state = Thread::State::kDone;
    thread->fiber.reset();
    notify_all(thread);
  }
  // A thread that wants a lock looks again when another thread has acted.
  if (thread->state == Thread::State::kWantsLock) {
    want_lock_.push_back(thread);
  } else {
    let_look_again();
  }
}

void World::let_look_again() {
  for (Thread* const thread : want_lock_) make_runnable(thread);
  want_lock_.clear();
}

void World::make_runnable(Thread* thread) {
  thread->state = Thread::State::kRunnable;
  runnable_.push_back(thread);
}

void World::yield_now() {
  make_runnable(current_);
  current_->fiber->yield();
}

// Blocks the calling thread until it is woken; false: the time is over.
bool World::block(const char* where, std::int64_t until_ns) {
  Thread* const thread = current_;
  const std::uint64_t epoch = ++thread->epoch;
  thread->state = Thread::State::kBlocked;
  thread->timed_out = false;
  thread->where = where;
  thread->until_ns = until_ns;
  if (until_ns != kForever) {
    at(until_ns, {}, {thread, epoch});
  }
  thread->fiber->yield();
  return !thread->timed_out;
}

void World::wake(Thread* thread) {
  ++thread->epoch;
  make_runnable(thread);
}

// Each step begins with this.
void World::enter(const char* what) {
  if (current_ == nullptr) return;
  Process* const process = current_->process;
  current_->where = what;
  current_->until_ns = kForever;
  now_ns_ += kCallNs;
  const auto mix = [this](std::uint64_t value) { trace_ = (trace_ ^ value) * 0x9E3779B97F4A7C15U + (trace_ >> 29); };
  mix(static_cast<std::uint64_t>(now_ns_ - begin_ns_));
  mix(static_cast<std::uint64_t>(current_->number - threads_.front().number));
  mix(static_cast<unsigned char>(what[0]));
  ++process->steps;
  if (const auto step = process->at_steps.find(process->steps); step != process->at_steps.end() && !finishing_) {
    step->second();
  }
  const bool held = (process->stopped || process->dead) && !finishing_;
  if (held || draw(options_.preempt_one_in) == 0) yield_now();
}

std::int64_t World::now_ns() {
  return now_ns_;
}

void World::sleep_ns(std::int64_t ns) {
  static_cast<void>(block("sleep", now_ns_ + ns));
}

void World::await_unlock() {
  current_->state = Thread::State::kWantsLock;
  current_->where = "a lock";
  current_->until_ns = kForever;
  current_->fiber->yield();
}

bool World::wait(const void* condition, std::int64_t deadline_ns) {
  std::vector<Waiter>& waiters = conditions_[condition];
  add_waiter(&waiters, current_);
  return block("a condition", deadline_ns);
}

void World::notify_all(const void* condition) {
  const auto found = conditions_.find(condition);
  if (found == conditions_.end()) return;
  wake_all(&found->second);
}

void World::wake_all(std::vector<Waiter>* waiters) {
  for (const Waiter& waiter : *waiters) {
    if (is_waiting(waiter)) wake(waiter.thread);
  }
  waiters->clear();
}

// Will be woken from the wait that the thread is about to begin.
void World::add_waiter(std::vector<Waiter>* waiters, Thread* thread) {
  const auto known =
      std::find_if(waiters->begin(), waiters->end(), [&](const Waiter& waiter) { return waiter.thread == thread; });
  if (known == waiters->end()) {
    waiters->push_back({thread, thread->epoch + 1});
  } else {
    known->epoch = thread->epoch + 1;
  }
}

void World::open(Gate* gate) {
  gate->open_ = true;
  notify_all(gate);
}

void World::pass(const Gate& gate) {
  while (!gate.open_ && !current_->process->dead) {
    add_waiter(&conditions_[&gate], current_);
    static_cast<void>(block(kAtGate, kForever));
  }
}

// ---- Threads and identity -----------------------------------------------------------------------

int World::pthread_create(pthread_t* thread, const pthread_attr_t* /*attributes*/, void* (*body)(void*),
                          void* argument) {
  *thread = static_cast<pthread_t>(spawn(current_->process, [body, argument] { body(argument); })->number);
  return 0;
}

void World::pthread_join(pthread_t thread) {
  const auto found = std::find_if(threads_.begin(), threads_.end(),
                                  [&](const Thread& t) { return t.number == static_cast<int>(thread); });
  if (found == threads_.end()) return;  // a thread of an ended world: no run depends on earlier ones
  enter("pthread_join");
  while (found->state != Thread::State::kDone) {
    add_waiter(&conditions_[&*found], current_);
    static_cast<void>(block("pthread_join", kForever));
  }
}

pid_t World::getpid() {
  return current_ == nullptr ? 1 : current_->process->pid;
}

int World::gethostname(char* name, std::size_t size) {
  const std::string text = fmt::format("host{}", current_->process->host - kFirstHost);
  std::strncpy(name, text.c_str(), size);
  return 0;
}

ssize_t World::getrandom(void* data, std::size_t size) {
  auto* const bytes = static_cast<unsigned char*>(data);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<unsigned char>(bytes_());
  return static_cast<ssize_t>(size);
}

// ---- Messages of several parts ---------------------------------------------------------------------

ssize_t World::sendmsg(int fd, const msghdr* message) {
  std::string bytes;
  for (std::size_t i = 0; i < message->msg_iovlen; ++i) {
    bytes.append(static_cast<const char*>(message->msg_iov[i].iov_base), message->msg_iov[i].iov_len);
  }
  return send(fd, bytes.data(), bytes.size());
}

ssize_t World::recvmsg(int fd, msghdr* message) {
  ssize_t total = 0;
  for (std::size_t i = 0; i < message->msg_iovlen; ++i) {
    const iovec& part = message->msg_iov[i];
    const ssize_t got = recv(fd, part.iov_base, part.iov_len);
    if (got < 0) return total == 0 ? got : total;
    total += got;
    if (static_cast<std::size_t>(got) < part.iov_len) break;
  }
  return total;
}

}  // namespace tutti::internal::sim
