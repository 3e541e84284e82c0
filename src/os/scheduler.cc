#include "os/scheduler.h"

namespace tutti::internal::os {

constinit Scheduler* detail::scheduler = nullptr;

void set_scheduler(Scheduler* simulated) {
  detail::scheduler = simulated;
}

}  // namespace tutti::internal::os
