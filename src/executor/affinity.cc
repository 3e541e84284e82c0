#include "executor/affinity.h"

#include "os/clock.h"

namespace tutti::internal::executor {
namespace {

// Asks the kernel each time, also while a rank waits: the application may have changed the mask since, and the values
// that were detected for the machine (src/topology) would not show that.
bool allowed(cpu_set_t* set) {
  return ::sched_getaffinity(0, sizeof *set, set) == 0;
}

}  // namespace

Affinity::Affinity(Moves moves) : until_ns_(moves == Moves::kAll ? INT64_MAX : now_ns() + kSettleNs) {
  if (moves < Moves::kStart || !allowed(&usual_) || CPU_COUNT(&usual_) < 2) until_ns_ = 0;
}

bool Affinity::leave_processor() const {
  const int here = ::sched_getcpu();
  if (here < 0 || now_ns() >= until_ns_) return false;
  cpu_set_t others = usual_;
  CPU_CLR(static_cast<unsigned>(here), &others);
  return pass_through(others);
}

bool Affinity::move_to(int processor) const {
  if (processor < 0 || processor >= CPU_SETSIZE || !CPU_ISSET(static_cast<unsigned>(processor), &usual_) ||
      now_ns() >= until_ns_) {
    return false;
  }
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(static_cast<unsigned>(processor), &one);
  return pass_through(one);
}

// Confined to `processors`, the thread runs there when the call returns.
bool Affinity::pass_through(const cpu_set_t& processors) const {
  cpu_set_t now;
  if (!allowed(&now) || !CPU_EQUAL(&now, &usual_)) return false;
  if (::sched_setaffinity(0, sizeof processors, &processors) != 0) return false;
  // Does not overwrite a mask that another thread has set meanwhile.
  if (allowed(&now) && CPU_EQUAL(&now, &processors)) (void)::sched_setaffinity(0, sizeof usual_, &usual_);
  return true;
}

}  // namespace tutti::internal::executor
