// A simulated world: processes on hosts, their threads, a clock, and a TCP network between the hosts, all in one real
// thread. It replaces the kernel (os/kernel.h), time and locks (os/scheduler.h), so the library's own code runs in it
// unchanged: joining, the control tree, the handling of failures.
//
// Everything follows from a seed: which thread runs next, how long each packet takes, where a thread is interrupted.
// Virtual time passes only when no thread can run, so minutes of timeouts take milliseconds. The same seed and program
// give the same run, and trace() is a hash of the run.
//
// A step of a process is a call of the kernel that another process or thread could see. Other calls are not steps, so
// no process stops or dies in one: the library makes them under locks of the whole process, which all simulated
// processes share.
//
// A process can be killed, stopped, continued, or cut off from the network: between two runs of the world, or at its
// n-th step (at_step()). A killed process does nothing more that another one could see. Its threads run to their ends
// in finish(), with all their connections gone, so that nothing leaks and every run also shows that a process without a
// network ends.
//
// Threads: one. Assertions of a test belong into the test's own function, not into processes.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "os/kernel.h"
#include "os/scheduler.h"
#include "sim/world/fiber.h"
#include "sim/world/socket.h"

namespace tutti::internal::sim {

struct WorldOptions {
  std::uint64_t seed = 1;
  // Delay of a packet, uniformly distributed. One of 64 takes up to slow_us.
  std::int64_t delay_low_us = 20;
  std::int64_t delay_high_us = 200;
  std::int64_t delay_slow_us = 5000;
  std::size_t buffer_bytes = std::size_t{64} << 10;  // in each direction of a connection
  bool two_networks = false;                         // each host has an address more, which no other host can reach
  unsigned preempt_one_in = 16;                      // one in this many calls lets another thread run
};

// Opened once, by the test or a process; processes wait for it with World::pass().
class Gate {
 public:
  [[nodiscard]] bool is_open() const { return open_; }

 private:
  friend class World;
  bool open_ = false;
};

// Data that a process has sent and descriptors that it has opened.
struct Traffic {
  std::uint64_t sends = 0;     // calls of send() that took something
  std::uint64_t bytes = 0;     // of them
  std::uint64_t received = 0;  // bytes
  std::uint64_t connects = 0;
  std::uint64_t accepts = 0;
  std::uint64_t polled = 0;  // descriptors passed to poll()
};

// One thread of a simulated process.
struct Thread {
  enum class State : std::uint8_t { kRunnable, kBlocked, kWantsLock, kDone };
  int number = 0;
  Process* process = nullptr;
  std::unique_ptr<Fiber> fiber;  // null when done
  State state = State::kRunnable;
  std::uint64_t epoch = 0;      // rises with each wait, to distinguish late wake-ups
  bool timed_out = false;       // the last wait
  const char* where = "start";  // for messages: the call in which it is blocked,
  std::int64_t until_ns = 0;    // and until when
};

struct Process {
  int pid = 0;
  std::uint32_t host = 0;  // its IPv4 address, in the host's byte order
  std::string name;
  bool dead = false;
  bool stopped = false;
  std::uint64_t steps = 0;
  std::map<std::uint64_t, std::function<void()>> at_steps;
  std::vector<Thread*> threads;
  std::vector<Thread*> held;  // threads that could run if it were not stopped or dead
  std::vector<Socket*> sockets;
  Traffic traffic;
};

class World final : private os::Kernel, private os::Scheduler {
 public:
  explicit World(const WorldOptions& options);
  ~World() override;

  // ---- From the test
  // A process on its own host, or on the host of another one, whose first thread runs `body`.
  Process* start(const std::string& name, std::function<void()> body, const Process* same_host = nullptr);
  // Another thread of the process.
  void start_thread(Process* process, std::function<void()> body) {
    static_cast<void>(spawn(process, std::move(body)));
  }
  // Runs the world until the condition is true. False: `limit_ms` of virtual time are over, or nothing happens any
  // more; then report() says which threads wait for what.
  bool run_until(const std::function<bool()>& condition, std::int64_t limit_ms);
  void run_for(std::int64_t ms);
  // Kills living processes and runs all threads to their ends. True if all have ended. Called once, at the end.
  bool finish();

  // Before the n-th step from now on, by any thread of the process: kill(), stop() and the like.
  static void at_step(Process* process, std::uint64_t n, std::function<void()> action);
  void after_ms(std::int64_t ms, std::function<void()> action);
  void kill(Process* process);
  void stop(Process* process);
  // Resets all of its connections, as a packet filter that has lost its state does.
  void break_connections(Process* process);
  void go_on(Process* process);
  // Packets from and to its host are kept until it is connected again.
  void cut_off(Process* process);
  void reconnect(Process* process);
  // REQUIRES: two_networks. From now on a packet filter refuses connections to its host's first address. Those to the
  // other address succeed; of every two from one host, the first one's first packet is lost, and repeated a second
  // later.
  void filter(const Process* process) { filtered_.try_emplace(process->host); }

  [[nodiscard]] std::int64_t elapsed_ms() const { return (now_ns_ - begin_ns_) / 1'000'000; }
  [[nodiscard]] std::uint64_t trace() const { return trace_; }
  [[nodiscard]] std::string report() const;
  [[nodiscard]] std::mt19937_64& random() { return random_; }
  [[nodiscard]] std::uint64_t draw(std::uint64_t below) { return random_() % below; }
  [[nodiscard]] Traffic traffic() const;  // of all processes

  // ---- From the test or a process
  void open(Gate* gate);

  // ---- From processes
  // Waits until the gate is open. In a killed process, which runs to its end, all gates are open.
  void pass(const Gate& gate);
  [[nodiscard]] Process* self() const { return current_ == nullptr ? nullptr : current_->process; }

 private:
  friend struct Socket;
  struct Event {
    std::int64_t at_ns;
    std::uint64_t number;
    std::function<void()> action;  // if `waiter` is null: otherwise its wait ends
    Waiter waiter{};
    bool operator<(const Event& other) const {
      return at_ns != other.at_ns ? at_ns > other.at_ns : number > other.number;
    }
  };

  // ---- Threads
  void enter(const char* what);
  void step();
  void run(Thread* thread);
  Thread* spawn(Process* process, std::function<void()> body);
  bool block(const char* where, std::int64_t until_ns);
  void wake(Thread* thread);
  void wake_all(std::vector<Waiter>* waiters);
  void make_runnable(Thread* thread);
  void let_look_again();  // threads that want a lock
  void yield_now();
  bool advance(std::int64_t limit_ns);
  void at(std::int64_t at_ns, std::function<void()> action, Waiter waiter = {});

  // ---- os::Scheduler
  std::int64_t now_ns() override;
  void sleep_ns(std::int64_t ns) override;
  void await_unlock() override;
  bool wait(const void* condition, std::int64_t deadline_ns) override;
  void notify_all(const void* condition) override;

  // ---- os::Kernel
  int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*body)(void*),
                     void* argument) override;
  void pthread_join(pthread_t thread) override;
  pid_t getpid() override;
  int gethostname(char* name, std::size_t size) override;
  ssize_t getrandom(void* data, std::size_t size) override;
  int getifaddrs(ifaddrs** list) override;
  void freeifaddrs(ifaddrs* list) override;
  int close(int fd) override;
  int poll(pollfd* entries, nfds_t count, int timeout_ms) override;
  int epoll_create() override;
  int epoll_ctl(int set, int operation, int fd, epoll_event* event) override;
  int epoll_wait(int set, epoll_event* events, int most) override;
  int eventfd() override;
  void eventfd_write(int fd) override;
  void eventfd_read(int fd) override;
  int socket(int family, int type) override;
  int bind(int fd, const sockaddr* address, socklen_t length) override;
  int listen(int fd, int backlog) override;
  int accept(int fd) override;
  int connect(int fd, const sockaddr* address, socklen_t length) override;
  int getsockname(int fd, sockaddr* address, socklen_t* length) override;
  int getpeername(int fd, sockaddr* address, socklen_t* length) override;
  int getsockopt(int fd, int level, int name, void* value, socklen_t* length) override;
  int setsockopt(int fd, int level, int name, const void* value, socklen_t length) override;
  ssize_t send(int fd, const void* data, std::size_t size) override;
  ssize_t recv(int fd, void* data, std::size_t size) override;
  ssize_t sendmsg(int fd, const msghdr* message) override;
  ssize_t recvmsg(int fd, msghdr* message) override;
  int shutdown(int fd, int how) override;

  // ---- Sockets (world_sockets.cc)
  Socket* make(int kind);
  int give(Socket* socket, Process* owner);
  [[nodiscard]] Socket* find(int fd) const;
  [[nodiscard]] std::size_t room(const Socket& socket) const;
  [[nodiscard]] short ready(const Socket& socket, short events) const;
  void wake_by(Socket* socket, Thread* thread);
  static void add_waiter(std::vector<Waiter>* waiters, Thread* thread);
  void changed(Socket* socket);
  std::int64_t delay_ns();
  void packet(Socket* from, std::uint32_t to_host, std::function<void()> arrives);
  void deliver(std::uint32_t from_host, std::uint32_t to_host, std::function<void()> arrives);
  void arrive(Socket* client, std::uint64_t where);
  void connect_filtered(Socket* client, bool inside);
  void refuse(Socket* client, std::uint32_t host);
  void send_reset(Socket* from);
  void end(Socket* socket);

  const WorldOptions options_;
  std::mt19937_64 random_;  // order and times of events,
  std::mt19937_64 bytes_;   // and bytes of getrandom()
  std::int64_t begin_ns_;
  std::int64_t now_ns_;
  std::uint64_t trace_ = 0;
  Thread* current_ = nullptr;
  bool finishing_ = false;
  bool finished_ = false;
  std::list<Process> processes_;
  std::list<Thread> threads_;
  std::vector<Thread*> runnable_;
  std::vector<Thread*> want_lock_;
  std::unordered_map<const void*, std::vector<Waiter>> conditions_;
  std::vector<Event> events_;  // a heap, the next one first
  std::uint64_t next_event_ = 0;
  std::uint32_t next_host_ = 0;
  std::uint16_t next_port_ = 20000;
  std::deque<Socket> sockets_;
  std::vector<Socket*> descriptors_;                                     // by number minus kFirstFd; null once closed
  std::map<std::uint64_t, Socket*> listeners_;                           // by host and port
  std::map<std::uint32_t, std::int64_t> cut_;                            // hosts, and since when they are cut off
  std::deque<std::function<void()>> kept_;                               // packets from and to them
  std::map<std::uint32_t, std::map<std::uint32_t, unsigned>> filtered_;  // hosts, and the connections from each
};

}  // namespace tutti::internal::sim
