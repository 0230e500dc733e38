// LongWait holds the longest pause of a communicator's work that ended with progress. A later pause
// of about that length is then not reported as a hang. There is a LongWait for each operation and
// size class that was called last before such a pause.
//
// Pauses of a job recur: for a checkpoint, an evaluation, the next request. A pause that does not
// recur, as at the start of a job, must not excuse a hang hours later. So after a pause ended, it
// counts for kLongWaitRecurs times the time since the end of the last similar pause; the first one
// for kLongWaitRecurs times as long as work had run before it.
//
//   word   bits
//   what   length of the pause in microseconds (48) | last call before it, packed by LastCall in
//          segment_layout.h (16); 0: free
//   when   until when it counts (32) | end of the last similar pause (32); monotonic, seconds
//
// Thread: the background thread writes; any process reads. The two words are not read at once, so a
// reader may combine the length of one pause with the times of another.
#ifndef METRICS_LONG_WAIT_H_
#define METRICS_LONG_WAIT_H_

#include <algorithm>
#include <cstdint>

#include "metrics/atomic_cell.h"

namespace nccl_pulse {

inline constexpr int kLongWaits = 8;  // per communicator
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
  // Returns the time until which a pause counts that is expected again after `period_ns`.
  static constexpr uint64_t CountsUntilNs(uint64_t period_ns, uint64_t ended_ns) {
    return ended_ns + kLongWaitRecurs * period_ns;
  }
  // True if two pauses are similar in length: within a factor of 1.5.
  static constexpr bool AreAlike(uint64_t a_ns, uint64_t b_ns) {
    return 3 * std::min(a_ns, b_ns) >= 2 * std::max(a_ns, b_ns);
  }

  Relaxed<uint64_t> what, when;

 private:
  static constexpr uint64_t kSecondNs = 1000000000;
};

}  // namespace nccl_pulse

#endif  // METRICS_LONG_WAIT_H_
