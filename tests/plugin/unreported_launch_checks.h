// What the tests of unreported launches share.
#ifndef TESTS_PLUGIN_UNREPORTED_LAUNCH_CHECKS_H_
#define TESTS_PLUGIN_UNREPORTED_LAUNCH_CHECKS_H_

#include <gtest/gtest.h>

#include <memory>
#include <thread>

#include "tests/plugin/stream_job.h"

namespace nccl_pulse {

using Call = StreamCommunicator::Call;

struct Seen {
  uint64_t launches, completed, unreported;
  bool operator==(const Seen& other) const {
    return launches == other.launches && completed == other.completed &&
           unreported == other.unreported;
  }
  friend std::ostream& operator<<(std::ostream& out, const Seen& seen) {
    return out << seen.launches << " launches, " << seen.completed << " completed, "
               << seen.unreported << " calls unreported";
  }
};

inline Seen See(const StreamCommunicator& comm) {
  WaitForPoll();
  const CommunicatorSnapshot measured = comm.Read();
  return {measured.launches, measured.launches_completed, measured.unreported_calls};
}

// Every call has a duration, or one reason.
inline void ExpectEveryCallOnce(const StreamCommunicator& comm) {
  EXPECT_TRUE(WaitUntil([&] {
    AdvanceClock(kSecond / 10);
    const CommunicatorSnapshot measured = comm.Read();
    return TimedOperations(measured) + Untimed(measured) >= Calls(measured);
  }));
  // And no more than that, however often it is looked at.
  for (int i = 0; i < 8; ++i) {
    AdvanceClock(kSecond);
    WaitForPoll();
  }
  const CommunicatorSnapshot measured = comm.Read();
  EXPECT_EQ(TimedOperations(measured) + Untimed(measured), Calls(measured));
}

// One that is made by a thread which may be NCCL's own.
inline std::unique_ptr<StreamCommunicator> MakeElsewhere(FakeCuda& gpu, uint64_t comm_id) {
  std::unique_ptr<StreamCommunicator> comm;
  std::thread([&] { comm = std::make_unique<StreamCommunicator>(gpu, comm_id); }).join();
  gpu.MakeCurrent(comm->gpu_context());
  return comm;
}

// From now on that operation is known to be hidden. There are two launches, which have completed, and
// one call that stays unreported.
inline void LearnHidden(FakeCuda& gpu, StreamCommunicator& comm, const char* op = "Broadcast") {
  comm.Run(0, "AllGather");
  comm.RunUnreported(0, op);
  comm.Run(0, "AllGather");
  gpu.Advance(kMs);
  EXPECT_EQ(See(comm).unreported, 0u);
}

}  // namespace nccl_pulse

#endif  // TESTS_PLUGIN_UNREPORTED_LAUNCH_CHECKS_H_
