#include "exporter/diagnosis/waits/usual_wait.h"

#include <algorithm>

namespace nccl_pulse {

bool IsUsual(int64_t waited_ns, uint64_t before_ns) {
  return before_ns >= kLeastLongWaitNs &&
         static_cast<double>(waited_ns) <= kUsualFactor * static_cast<double>(before_ns);
}

uint64_t LongestWaitBefore(const RankView& rank, int64_t since_realtime_ns) {
  const CommunicatorSnapshot& communicator = *rank.communicator;
  uint64_t longest_ns = 0;
  for (const LongestWaitSnapshot& wait : communicator.longest_waits) {
    if (!wait.op.empty() && wait.op == communicator.last_call_op &&
        wait.size_class == communicator.last_call_size_class &&
        since_realtime_ns <= wait.counts_until_realtime_ns) {
      longest_ns = std::max(longest_ns, wait.longest_ns);
    }
  }
  return longest_ns;
}

}  // namespace nccl_pulse
