// Everything at once, for a thread sanitizer to watch.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "tests/plugin/stream_job.h"
#include "tests/plugin/unreported_launch_checks.h"
#include "tests/prelude/threads.h"

namespace nccl_pulse {
namespace {

TEST_WITH_GPU(UnreportedLaunchTest, CallsPollsReadsAndFinalizesAtOnce) {
  constexpr int kThreads = 4;
  constexpr int kRounds = kSanitized ? 60 : 200;
  std::vector<std::unique_ptr<StreamCommunicator>> comms;
  for (uint64_t i = 0; i < kThreads; ++i) {
    comms.push_back(std::make_unique<StreamCommunicator>(gpu, 1 + i, static_cast<int>(i)));
    if (i % 2 == 1) comms.back()->LaunchElsewhere();
    gpu.MakeCurrent(comms.back()->gpu_context());
    LearnHidden(gpu, *comms.back());
  }
  TimeEveryCall();
  std::atomic<bool> end{false};
  // In slow steps: a thread that waits for its turn between two callbacks must not miss seconds.
  PassingTime time(gpu, kMs / 100);
  std::thread reader([&] {
    while (!end) {
      const auto before = ReadSnapshot().communicators;
      // Calls go on while a snapshot is read.
      const auto after = ReadSnapshot().communicators;
      for (size_t i = 0; i < before.size(); ++i) {
        EXPECT_LE(before[i].launches_completed, before[i].launches);
        EXPECT_LE(TimedOperations(before[i]) + Untimed(before[i]), Calls(after[i]) + 1);
      }
    }
  });
  Threads(kThreads, [&](int i) {
    StreamCommunicator& comm = *comms[static_cast<size_t>(i)];
    for (int round = 0; round < kRounds; ++round) {
      comm.Run(1000);
      comm.RunUnreported(1000);
      void* group = comm.StartGroup(false, 2);
      const Call reported = comm.MakeCall(group, "AllReduce", 100);
      comm.MakeCall(group, "Broadcast", 100);
      comm.Launch(group, 1000);
      comm.Report(reported);
      comm.StopGroup(group);
    }
    comm.Run(1000);
  }).Join();
  end = true;
  time.End();
  reader.join();
  gpu.Advance(kSecond);
  for (int i = 0; i < kThreads; ++i) {
    const StreamCommunicator& comm = *comms[static_cast<size_t>(i)];
    // A non-blocking one has those that NCCL reports.
    const auto launches = static_cast<uint64_t>(i % 2 == 1 ? 2 * kRounds + 3 : 4 * kRounds + 3);
    EXPECT_EQ(See(comm), (Seen{launches, launches, 0}));
    ExpectEveryCallOnce(comm);
  }
  EXPECT_EQ(IgnoredByName(ReadSnapshot()), (std::map<std::string, uint64_t>{}));
}

}  // namespace
}  // namespace nccl_pulse
