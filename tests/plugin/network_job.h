// Callbacks of the network proxy as NCCL makes them, and what was measured of them.
#ifndef TESTS_PLUGIN_NETWORK_JOB_H_
#define TESTS_PLUGIN_NETWORK_JOB_H_

#include <gtest/gtest.h>
#include <unistd.h>

#include <ctime>

#include "metrics/segment_layout.h"
#include "tests/plugin/harness.h"

namespace nccl_pulse {

using NameCounts = std::map<std::string, uint64_t>;

inline constexpr int kStepBit = static_cast<int>(abi::kEventProxyStep);
inline const Environment kAlways{{"NCCL_PULSE_NETWORK_WINDOW", "100"},
                                 {"NCCL_PULSE_CLOCK", "monotonic"}};
inline const Environment kHalf{{"NCCL_PULSE_NETWORK_WINDOW", "50"}};

inline void Pause() {
  const timespec pause{0, 3000000};
  nanosleep(&pause, nullptr);
}

inline void* StartProxyOp(NcclCommunicator& comm, void* coll) {
  return Start(comm.context(), ProxyOpEvent(coll, getpid()));
}
inline void* StartStep(NcclCommunicator& comm, void* proxy) {
  return Start(comm.context(), StepEvent(proxy));
}

// Callbacks, and the least and most that can have passed between any two of them.
class Timeline {
 public:
  template <typename Callback>
  void Make(Callback callback) {
    Pause();
    before_.push_back(NowNs());
    callback();
    after_.push_back(NowNs());
  }
  void ExpectWithin(uint64_t measured_ns, size_t from, size_t to, const char* what) const {
    EXPECT_GE(measured_ns, before_[to] - after_[from]) << what;
    EXPECT_LE(measured_ns, after_[to] - before_[from]) << what;
  }

 private:
  std::vector<uint64_t> before_, after_;
};

// All callbacks of one step, without pauses.
inline void RunSend(NcclCommunicator& comm, void* proxy, uint64_t bytes) {
  void* step = StartStep(comm, proxy);
  RecordStep(step, abi::kStateProxyStepSendGpuWait, 0);
  RecordStep(step, abi::kStateProxyStepSendPeerWait, 0);
  RecordStep(step, abi::kStateProxyStepSendWait, bytes);
  Stop(step);
}
inline void RunReceive(NcclCommunicator& comm, void* proxy, uint64_t bytes) {
  void* step = StartStep(comm, proxy);
  RecordStep(step, abi::kStateProxyStepRecvWait, 0);
  RecordStep(step, abi::kStateProxyStepRecvFlushWait, bytes);
  RecordStep(step, abi::kStateProxyStepRecvGpuWait, 0);
  Stop(step);
}

inline uint64_t Wait(const CommunicatorSnapshot& communicator, NetworkWait wait) {
  return communicator.network_wait_ns[static_cast<size_t>(wait)];
}
using Directions = std::array<uint64_t, kNetworkDirections>;

inline bool IsOn() { return (NcclCommunicator::event_mask() & kStepBit) != 0; }

// Until the background thread has gone round a few times.
inline void WaitForPolls() {
  for (int i = 0; i < 5; ++i) {
    const int64_t before = ReadSnapshot().last_poll_realtime_ns;
    EXPECT_TRUE(WaitUntil([&] { return ReadSnapshot().last_poll_realtime_ns != before; }));
  }
}

}  // namespace nccl_pulse

#endif  // TESTS_PLUGIN_NETWORK_JOB_H_
