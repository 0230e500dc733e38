// How long work of a communicator stood still and then went on: the longest for each kind of call
// that it stood in, and until when that is a measure for the next wait.
//
// Waits of a job recur: for a checkpoint, an evaluation, the next request. One that does not come
// again, as at the start of a job, must not excuse a hang hours later. So a wait counts for
// kLongWaitRecurs times as long as work had gone on before it.
//
//   word   bits
//   what   longest, in microseconds (48) | what was called last meanwhile, LastCall (16); 0: free
//   when   until when it counts (32) | when the last one about as long ended (32); monotonic, seconds
//
// Thread: the background thread writes; any process reads, the two words at different moments: it
// may then take an end for that of the wait before.
#ifndef METRICS_LONG_WAIT_H_
#define METRICS_LONG_WAIT_H_

#include <algorithm>
#include <cstdint>

#include "metrics/atomic_cell.h"

namespace nccl_pulse {

inline constexpr int kLongWaits = 8;  // of a communicator
inline constexpr uint64_t kLongWaitRecurs = 3;

struct LongWait {
  static constexpr uint64_t What(uint64_t last_call, uint64_t longest_ns) {
    return longest_ns / 1000 << 16 | (last_call & 0xffff);
  }
  static constexpr uint64_t Call(uint64_t what) { return what & 0xffff; }
  static constexpr uint64_t LongestNs(uint64_t what) { return (what >> 16) * 1000; }

  static constexpr uint64_t When(uint64_t ended_ns, uint64_t until_ns) {
    return std::min<uint64_t>(until_ns / kSecondNs, UINT32_MAX) << 32 |
           std::min<uint64_t>(ended_ns / kSecondNs, UINT32_MAX);
  }
  static constexpr uint64_t EndedNs(uint64_t when) { return (when & UINT32_MAX) * kSecondNs; }
  static constexpr uint64_t UntilNs(uint64_t when) { return (when >> 32) * kSecondNs; }
  // Work went on from `before_ns` to `begin_ns`.
  static constexpr uint64_t CountsUntilNs(uint64_t before_ns, uint64_t begin_ns,
                                          uint64_t ended_ns) {
    return ended_ns + (begin_ns > before_ns ? kLongWaitRecurs * (begin_ns - before_ns) : 0);
  }
  // Whether one says something of the other.
  static constexpr bool AreAlike(uint64_t a_ns, uint64_t b_ns) {
    return 3 * std::min(a_ns, b_ns) >= 2 * std::max(a_ns, b_ns);
  }

  Relaxed<uint64_t> what, when;

 private:
  static constexpr uint64_t kSecondNs = 1000000000;
};

}  // namespace nccl_pulse

#endif  // METRICS_LONG_WAIT_H_
