#include "os/asymmetric_fence.h"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace tutti::internal {
namespace {

long membarrier(int command) {
  return ::syscall(SYS_membarrier, command, 0U, 0);
}

}  // namespace

const bool detail::asymmetric_fence_works = membarrier(MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED) == 0;

void asymmetric_fence_heavy() {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (asymmetric_fence_works()) (void)membarrier(MEMBARRIER_CMD_GLOBAL_EXPEDITED);
}

void register_for_asymmetric_fence() {
  if (asymmetric_fence_works()) (void)membarrier(MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED);
}

}  // namespace tutti::internal
