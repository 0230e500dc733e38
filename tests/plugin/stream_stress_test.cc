// Everything at once, for a thread sanitizer to watch: threads that launch on communicators of
// their own, the poller, readers, communicators that come and go, a driver that fails now and then.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "tests/plugin/stream_job.h"

namespace nccl_pulse {
namespace {

constexpr int kThreads = 4;
constexpr int kRounds = kSanitized ? 150 : 400;

TEST_WITH_GPU(StreamStressTest, LaunchPollReadAndFinalizeAtOnce) {
  std::atomic<bool> end{false};
  std::vector<std::unique_ptr<StreamCommunicator>> steady;
  for (uint64_t i = 0; i < kThreads; ++i) {
    steady.push_back(std::make_unique<StreamCommunicator>(gpu, 1 + i, static_cast<int>(i)));
  }
  TimeEveryCall();
  PassingTime time(gpu);
  std::thread reader([&] {
    while (!end) {
      for (const CommunicatorSnapshot& measured : ReadSnapshot().communicators) {
        EXPECT_LE(measured.launches_completed, measured.launches);
      }
    }
  });
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      StreamCommunicator& comm = *steady[static_cast<size_t>(i)];
      for (int round = 0; round < kRounds; ++round) {
        comm.Run(1000);
        comm.RunGroup(1000, {{"Send", 100}, {"Recv", 100}});
      }
    });
    // Its communicators live for a few launches each; every third loses its context.
    threads.emplace_back([&, i] {
      for (int round = 0; round < kRounds / 10; ++round) {
        const auto id = static_cast<uint64_t>(100 + i * 1000 + round);
        StreamCommunicator comm(gpu, id, i);
        for (int n = 0; n < 5; ++n) comm.Run(1000);
        if (round % 3 == 0) gpu.DestroyContext(comm.gpu_context());
        for (int n = 0; n < 5; ++n) comm.Run(1000);
        comm.Finalize();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  end = true;
  time.End();
  reader.join();
  AdvanceAndPoll(gpu, kSecond);
  for (const auto& comm : steady) {
    const CommunicatorSnapshot measured = comm->Read();
    EXPECT_EQ(measured.launches, uint64_t{2} * kRounds);
    EXPECT_EQ(measured.launches_completed, uint64_t{2} * kRounds);
    EXPECT_EQ(TimedOperations(measured) + Untimed(measured), uint64_t{3} * kRounds);
    comm->Finalize();
  }
  AdvanceClockAndPoll(6 * kSecond);
  AdvanceClockAndPoll(6 * kSecond);
  for (const CommunicatorSnapshot& measured : ReadSnapshot().communicators) {
    if (measured.comm_id < 100) continue;
    EXPECT_EQ(TimedOperations(measured) + Untimed(measured), 10u);
  }
  EXPECT_EQ(IgnoredByName(ReadSnapshot()), (std::map<std::string, uint64_t>{}));
}

}  // namespace
}  // namespace nccl_pulse
