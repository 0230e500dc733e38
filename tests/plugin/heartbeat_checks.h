// What the heartbeat tests share.
#ifndef TESTS_PLUGIN_HEARTBEAT_CHECKS_H_
#define TESTS_PLUGIN_HEARTBEAT_CHECKS_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tests/plugin/stream_job.h"

namespace nccl_pulse {

inline int64_t RealtimeNs() {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<int64_t>(now.tv_sec) * 1000000000 + now.tv_nsec;
}

// The two clocks are not read at the same moment.
inline constexpr int64_t kClockSlackNs = 2000000000;

inline void ExpectIdle(const StreamCommunicator& comm, uint64_t launches) {
  const CommunicatorSnapshot measured = comm.Read();
  EXPECT_TRUE(measured.has_heartbeat);
  EXPECT_EQ(measured.launches, launches);
  EXPECT_EQ(measured.launches_completed, launches);
  EXPECT_EQ(measured.oldest_inflight_realtime_ns, 0);
}

// Far enough from the last launch for it and the next one to have a gate, if that one was.
inline void RunWithGate(StreamCommunicator& comm, uint64_t duration_ns,
                        FakeCuda::Stream stream = nullptr) {
  AdvanceClock(kMs);
  comm.Run(duration_ns, "AllReduce", 4096, stream);
}

inline bool Says(const std::vector<std::string>& log, const std::string& text) {
  return std::any_of(log.begin(), log.end(),
                     [&](const std::string& line) { return line.find(text) != std::string::npos; });
}

}  // namespace nccl_pulse

#endif  // TESTS_PLUGIN_HEARTBEAT_CHECKS_H_
