#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "metrics/atomic_cell.h"

namespace nccl_pulse {

std::atomic<bool> StdAtomics::fences_are_uneven_{false};

void StdAtomics::PrepareHeavyFence() {
  // Relaxed: a thread that finds it not set makes a superfluous fence. No visit has begun yet.
  fences_are_uneven_.store(
      syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0,
      std::memory_order_relaxed);
}

bool StdAtomics::HeavyFence() {
  if (fences_are_uneven_.load(std::memory_order_relaxed)) {
    return syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) == 0;
  }
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return true;
}

}  // namespace nccl_pulse
