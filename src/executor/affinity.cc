#include "executor/affinity.h"

namespace tutti::executor {
namespace {

bool allowed(cpu_set_t* set) {
  return ::sched_getaffinity(0, sizeof *set, set) == 0;
}

}  // namespace

Affinity::Affinity(bool moves) : moves_(moves && allowed(&usual_) && CPU_COUNT(&usual_) >= 2) {}

bool Affinity::leave_processor() const {
  cpu_set_t now;
  const int here = ::sched_getcpu();
  if (!moves_ || here < 0 || !allowed(&now) || !CPU_EQUAL(&now, &usual_)) return false;
  cpu_set_t others = now;
  CPU_CLR(static_cast<unsigned>(here), &others);
  if (::sched_setaffinity(0, sizeof others, &others) != 0) return false;
  // Not over what another thread has set meanwhile.
  if (allowed(&now) && CPU_EQUAL(&now, &others)) (void)::sched_setaffinity(0, sizeof usual_, &usual_);
  return true;
}

}  // namespace tutti::executor
