#include "progress.h"

#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>

#include "communicators.h"
#include "config.h"
#include "interface.h"

namespace tutti::mpi {
namespace {

using namespace std::chrono_literals;

constexpr std::chrono::microseconds kTick = 1ms;  // a call that takes longer gets help
// The interval while no call needs progress, because each poll takes processor time from the program. With a poll each
// millisecond, a program of two ranks that computes and calls every 0.1 ms took 1.03 times as long.
constexpr std::chrono::microseconds kSlowTick = 16 * kTick;
constexpr auto kFastTick = 200us;  // as often, at first
constexpr int kFastTicks = 200;
// While there are windows: one access of a peer's may take several looks. It must not wait long for the first either.
constexpr std::chrono::microseconds kWindowTick = 20us;
constexpr std::chrono::microseconds kSlowWindowTick = 4 * kTick;
constexpr int kIdleTicks = 50;  // without a call: the thread sleeps until one comes
constexpr int kLooks = 8;       // at the network, each time

thread_local bool helps __attribute__((tls_model("initial-exec"))) = false;

// How many threads are in tutti, and kHelping while the helper is in the MPI library; with MPI_THREAD_MULTIPLE both may
// be there at once, else a thread that leaves waits.
constexpr unsigned kHelping = 1U << 31;
std::atomic<unsigned> inside{0};
std::atomic<unsigned> entries{0};
std::atomic<bool> asleep{true};
std::atomic<bool> stopping{false};
std::atomic<int> level{-1};
std::atomic<int> windows{0};
#if defined(MPICH)
MPI_Request never_complete = MPI_REQUEST_NULL;
#endif

struct Helper {
  std::mutex mutex;
  std::condition_variable wake;
  std::thread thread;
};
// Never freed: a program may call exit without MPI_Finalize while the thread runs.
Helper& helper() {
  static auto* const kHelper = new Helper;
  return *kHelper;
}

void help() {
  unsigned none = inside.load(std::memory_order_relaxed);
  if (none == 0) return;
  if (level.load(std::memory_order_relaxed) == MPI_THREAD_MULTIPLE) {
    progress_once();
    return;
  }
  // One thread at a time may be in MPI: it is in tutti now, and does not leave before the bit is cleared.
  if (!inside.compare_exchange_strong(none, none | kHelping, std::memory_order_acquire)) return;
  for (int look = 0; look < kLooks; ++look) progress_once();
  inside.fetch_and(~kHelping, std::memory_order_release);
}

// How long the helper sleeps until it looks again: shortly while that is of use, ever longer where it is not.
class Pace {
 public:
  [[nodiscard]] std::chrono::microseconds next() const {
    if (any_windows()) return suspects_ || useful_ > 0 ? kWindowTick : std::min(calm_, kSlowWindowTick);
    if (suspects_) return kTick;
    return useful_ > 0 && useful_ < kFastTicks ? kFastTick : calm_;
  }
  void was_useful() {
    ++useful_;
    suspects_ = false;
    calm_ = shortest();
  }
  // waits: a thread is in a call that it was not in before. A poll soon afterwards finds out whether that takes long,
  // at most every other time.
  void was_useless(bool waits) {
    useful_ = 0;
    suspects_ = waits && !suspects_;
    if (!suspects_) calm_ = std::min(2 * calm_, kSlowTick);
  }
  // The program calls again.
  void begin_anew() { *this = Pace(); }

 private:
  static std::chrono::microseconds shortest() { return any_windows() ? kWindowTick : kTick; }

  int useful_ = 0;  // looks in a row
  bool suspects_ = false;
  std::chrono::microseconds calm_ = shortest();
};

void run() {
  helps = true;
  int idle = 0;
  Pace pace;
  unsigned seen = entries.load(std::memory_order_relaxed);
  // Else each sleep takes 50 us more.
  prctl(PR_SET_TIMERSLACK, 1000UL, 0UL, 0UL, 0UL);
  while (!stopping.load(std::memory_order_relaxed)) {
    std::this_thread::sleep_for(pace.next());
    const unsigned now = entries.load(std::memory_order_relaxed);
    const bool waits = inside.load(std::memory_order_relaxed) != 0;
    if (waits && now == seen) {
      help();
      pace.was_useful();
    } else {
      pace.was_useless(waits);
    }
    idle = waits || now != seen ? 0 : idle + 1;
    seen = now;
    if (idle < kIdleTicks) continue;
    std::unique_lock lock(helper().mutex);
    asleep.store(true);
    // Bounded: an entry that has just missed the flag is seen a little later.
    const bool called = helper().wake.wait_for(lock, 100ms, [] { return stopping.load() || inside.load() != 0; });
    asleep.store(false);
    seen = entries.load(std::memory_order_relaxed);
    idle = called ? 0 : kIdleTicks;
    if (called) pace.begin_anew();
  }
}

// Sequentially consistent, as what follows in Inside(): either that sees that the helper sleeps, or the helper sees
// this before it does.
void enter() {
  inside.fetch_add(1);
}

void leave() {
  if ((inside.fetch_sub(1, std::memory_order_acq_rel) & kHelping) == 0) return;
  while ((inside.load(std::memory_order_acquire) & kHelping) != 0) sched_yield();
}

// Signals are the application's: threads that are made meanwhile get none.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_{};
};

// Rare: the first call, and one after a pause.
__attribute__((noinline)) void wake() {
  const std::lock_guard lock(helper().mutex);
  if (stopping.load()) return;
  if (!helper().thread.joinable()) {
    asleep.store(false);
    const SignalsBlocked blocked;
    try {
      helper().thread = std::thread(run);
    } catch (const std::exception&) {
      asleep.store(true);  // no memory, or no thread can be made now; the next call tries again
    }
  }
  helper().wake.notify_one();
}

}  // namespace

bool progress_possible() {
  int now = level.load(std::memory_order_relaxed);
  if (now < 0) {
    PMPI_Query_thread(&now);
    level.store(now, std::memory_order_relaxed);
  }
  return now >= MPI_THREAD_SERIALIZED;
}

bool is_helper() {
  return helps;
}

void stop_progress() {
  stopping.store(true);
  {
    const std::lock_guard lock(helper().mutex);
    helper().wake.notify_one();
  }
  if (helper().thread.joinable()) helper().thread.join();
#if defined(MPICH)
  if (never_complete == MPI_REQUEST_NULL) return;
  PMPI_Grequest_complete(never_complete);
  PMPI_Wait(&never_complete, MPI_STATUS_IGNORE);
#endif
}

void count_window(int change) {
  windows.fetch_add(change, std::memory_order_relaxed);
}

bool any_windows() {
  return windows.load(std::memory_order_relaxed) > 0;
}

void look_after_call() {
  for (int look = 0; look < kLooks; ++look) progress_once();
}

#if defined(MPICH)
// A probe of a rank's own messages looks at no network, one of all messages stops at the first that has come. The test
// of a request that is never complete looks at all.
void progress_once() {
  static std::once_flag made;
  std::call_once(made, [] {
    const auto query = [](void*, MPI_Status*) { return MPI_SUCCESS; };
    const auto end = [](void*) { return MPI_SUCCESS; };
    const auto cancel = [](void*, int) { return MPI_SUCCESS; };
    PMPI_Grequest_start(query, end, cancel, nullptr, &never_complete);
  });
  MPI_Request request = never_complete;
  int flag = 0;
  PMPI_Test(&request, &flag, MPI_STATUS_IGNORE);
}
#else
void progress_once() {
  int flag = 0;
  if (config().recovers) heed_revocations();
  PMPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_SELF, &flag, MPI_STATUS_IGNORE);
}
#endif

Inside::Inside() {
  entries.store(entries.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  enter();
  if (asleep.load()) wake();
}

Inside::~Inside() {
  leave();
}

Outside::Outside() {
  leave();
}

Outside::~Outside() {
  enter();
}

}  // namespace tutti::mpi
