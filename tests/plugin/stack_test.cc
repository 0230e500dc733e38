// A job whose libraries keep much in thread-local memory, which lies on each thread's stack: the
// background thread runs all the same. Built with several sizes of it: kBytesOfTheJob.
#include <gtest/gtest.h>

#include "tests/plugin/stream_job.h"

namespace nccl_pulse {
namespace {

thread_local volatile char of_the_job[kBytesOfTheJob];

TEST(StackTest, TheBackgroundThreadHasRoom) {
  of_the_job[kBytesOfTheJob - 1] = 1;
  RunWithGpu([](FakeCuda& gpu) {
    StreamCommunicator comm(gpu, 1);
    comm.Run(kMs);
    AdvanceAndPoll(gpu, kSecond);
    EXPECT_EQ(ReadSnapshot().poller, PollerState::kRunning);
    EXPECT_EQ(comm.Read().launches_completed, 1u);
  });
}

}  // namespace
}  // namespace nccl_pulse
