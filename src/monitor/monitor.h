// The monitor: one thread of the process, which tells others about the process while it runs. It does the duties that
// the environment asks for; without any, there is no thread. It only reads what the ranks do (observe/reader.h), and
// never waits for a rank, so the job does not depend on it.
#pragma once

#include <memory>
#include <vector>

#include "net/socket.h"

namespace tutti::internal::monitor {

// One kind of work of the monitor. Threads: the monitor's, also for the destructor, unless the thread cannot start.
class Duty {
 public:
  Duty(const Duty&) = delete;
  Duty& operator=(const Duty&) = delete;
  virtual ~Duty() = default;
  // In a poll loop: prepare(set), set.wait(), advance(set). Both return soon.
  virtual void prepare(net::PollSet* set) = 0;
  virtual void advance(const net::PollSet& set) = 0;

 protected:
  Duty() = default;
};
using Duties = std::vector<std::unique_ptr<Duty>>;

// Called when a communicator has been made. The first time in a process, and the first time in a forked child, it reads
// the environment, and starts the thread if there are duties. An error is a warning. Any thread.
void start_monitor();

// The thread's work: does the duties until stop_fd is readable. A duty that throws pauses for a second, and the others
// go on.
void run_duties(const Duties& duties, int stop_fd);

}  // namespace tutti::internal::monitor
