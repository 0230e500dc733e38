// Settings that change while the job runs: what is timed then, and that a thousand changes under
// load lose nothing.
#include <dirent.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "exporter/control/control_client.h"
#include "tests/plugin/stream_job.h"
#include "tests/plugin/stream_timer_checks.h"
#include "tests/prelude/threads.h"

namespace nccl_pulse {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kPatience{120000};  // for a broken build to end

// Gives this process the commands; all of them are done.
void Give(const std::vector<std::string>& commands, milliseconds lasting = milliseconds(0)) {
  ControlQuestion question;
  question.pids = {getpid()};
  question.patience = kPatience;
  for (const std::string& each : commands) question.commands.push_back(MakeSet(each, lasting));
  const std::vector<ControlAnswer> answers = AskProcesses(question);
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers[0].problem, "");
  ASSERT_EQ(answers[0].replies.size(), commands.size());
  for (const ControlReply& reply : answers[0].replies) {
    EXPECT_EQ(reply.type, MessageType::kDone) << reply.text;
  }
}

int OpenDescriptors() {
  int count = 0;
  DIR* folder = opendir("/proc/self/fd");
  while (readdir(folder) != nullptr) ++count;
  closedir(folder);
  return count;
}

// A default is no choice: an agent may have another one.
TEST_WITH_GPU(LiveSettingsTest, ReadersSeeTheThresholdThatTheUserSet,
              {"NCCL_PULSE_LOG_LEVEL", "warn"}) {
  const StreamCommunicator comm(gpu, 1);
  EXPECT_EQ(ReadSnapshot().hang_after_ns, 0);
  Give({"HANG_SECONDS=45"});
  EXPECT_EQ(ReadSnapshot().hang_after_ns, 45000000000);
  Give({"HANG_SECONDS=default"});
  EXPECT_EQ(ReadSnapshot().hang_after_ns, 0);
}

TEST_WITH_STREAM(LiveSettingsTest, OneInOneTimesAllCallsAtOnceWhateverTheirRate,
                 {"NCCL_PULSE_TIMED_LAUNCHES_PER_SECOND", "1"}) {
  const auto run = [&](int calls) {
    for (int i = 0; i < calls; ++i) {
      comm.Run(1000);
      gpu.Advance(1000);
      WaitForPoll();  // its pair of events is free again
    }
  };
  comm.WarmUp();
  SlowClock();  // no second passes: the rate of launches is not looked at
  const uint64_t before = TimedOperations(comm.Read());
  Give({"TIMED_LAUNCHES_PER_SECOND=one-in-1"});
  run(100);
  EXPECT_EQ(TimedOperations(comm.Read()), before + 100);
  EXPECT_EQ(ReadSnapshot().sampling_exponent, 0);

  // One in 16 of 320, but for chance: five standard deviations of it.
  Give({"TIMED_LAUNCHES_PER_SECOND=one-in-10"});
  EXPECT_EQ(ReadSnapshot().sampling_exponent, 4);
  const uint64_t all = TimedOperations(comm.Read());
  run(320);
  EXPECT_NEAR(static_cast<double>(TimedOperations(comm.Read()) - all), 20, 22);

  // What it started with: at most one a second.
  Give({"TIMED_LAUNCHES_PER_SECOND=default"});
  const uint64_t then = TimedOperations(comm.Read());
  run(100);
  EXPECT_LE(TimedOperations(comm.Read()), then + 2);
  ExpectEveryOperationOnce(comm.Read(), 522);
}

TEST(LiveSettingsTest, AThousandChangesUnderLoadLoseNoCountAndLeakNothing) {
  constexpr int kThreads = 2;
  constexpr int kQuestions = 50;
  constexpr int kCommands = 20;  // of a question
  RunWithGpu(
      [](FakeCuda& gpu) {
        std::vector<std::unique_ptr<StreamCommunicator>> comms;
        for (int i = 0; i < kThreads; ++i) {
          comms.push_back(std::make_unique<StreamCommunicator>(gpu, 1 + i, i));
        }
        std::atomic<bool> end{false};
        std::array<std::atomic<uint64_t>, kThreads> made{};
        Threads threads(kThreads, [&](int i) {
          const auto place = static_cast<std::size_t>(i);
          while (!end) {
            comms[place]->Run(1000);
            gpu.Advance(500);
            ++made[place];
            std::this_thread::yield();
          }
        });
        std::vector<std::string> commands;
        while (commands.size() < kCommands) {
          for (const char* each : {"TIMED_LAUNCHES_PER_SECOND=one-in-1", "NETWORK_WINDOW=100",
                                   "TIMED_LAUNCHES_PER_SECOND=default", "NETWORK_WINDOW=default"}) {
            commands.emplace_back(each);
          }
        }
        // What is allocated once is there then. A poll more, and the connection is closed.
        const int open = OpenDescriptors();
        Give(commands);
        EXPECT_TRUE(WaitUntil([open] { return OpenDescriptors() == open; }));
        for (int i = 0; i < kQuestions; ++i) {
          Give(commands, milliseconds(i % 2 == 0 ? 0 : 60000));
          const std::vector<uint64_t> then(made.begin(), made.end());
          for (std::size_t place = 0; place < kThreads; ++place) {
            EXPECT_TRUE(WaitUntil([&] { return made[place] > then[place] + 10; }));
          }
        }
        end = true;
        threads.Join();
        gpu.Advance(kSecond);
        WaitForPoll();
        // A kilobyte lost with each command would be four hundred. The stand-in for the GPU is at rest.
        const std::size_t memory = mallinfo2().uordblks;
        for (int i = 0; i < kQuestions; ++i) Give(commands);
        WaitForPoll();  // the last connection is closed, too
        EXPECT_TRUE(WaitUntil([open] { return OpenDescriptors() == open; }));
        if (!kSanitized) {
          EXPECT_LT(mallinfo2().uordblks, memory + (256 << 10));
        }
        uint64_t timed = 0;
        for (int i = 0; i < kThreads; ++i) {
          const auto place = static_cast<std::size_t>(i);
          const CommunicatorSnapshot measured = comms[place]->Read();
          EXPECT_GT(made[place], 0u);
          EXPECT_EQ(Calls(measured), made[place]);
          EXPECT_EQ(Operations(measured), made[place]);
          EXPECT_EQ(measured.launches, made[place]);
          EXPECT_EQ(measured.launches_completed, made[place]);
          ExpectEveryOperationOnce(measured, made[place]);
          timed += TimedOperations(measured);
        }
        EXPECT_GT(timed, 0u);
        const ProcessSnapshot process = ReadSnapshot();
        EXPECT_EQ(process.commands[static_cast<int>(CommandResult::kDone)],
                  uint64_t{2 * kQuestions + 1} * kCommands);
        EXPECT_EQ(process.changed_settings, 0u);
        EXPECT_EQ(IgnoredByName(process), (std::map<std::string, uint64_t>{}));
      },
      {{"NCCL_PULSE_LOG_LEVEL", "off"}});
}

}  // namespace
}  // namespace nccl_pulse
