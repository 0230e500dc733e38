// The background thread: where it cannot be, where it may be only just, and how it ends.
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <functional>

#include "tests/plugin/stream_job.h"

#if defined(__SANITIZE_ADDRESS__)
// As in heartbeat_test.cc: processes exit while threads run.
extern "C" int __lsan_is_turned_off() { return 1; }  // NOLINT(bugprone-reserved-identifier)
#endif

namespace nccl_pulse {
namespace {

TEST_WITH_GPU(PollerTest, Runs) {
  const StreamCommunicator comm(gpu, 1);
  EXPECT_EQ(ReadSnapshot().poller, PollerState::kRunning);
  EXPECT_TRUE(comm.Read().has_heartbeat);
}

// Launches are reported, and nobody will know what becomes of them: not "stands still", not "idle".
TEST_WITH_GPU(PollerTest, WithoutItCompletionsAreUnknown) {
  FindProfiler(5);
  if (!RefuseSystemCalls({{SYS_clone, EAGAIN}, {SYS_clone3, EAGAIN}})) {
    SkipScenario("seccomp filters are not permitted here");
  }
  StreamCommunicator comm(gpu, 1);
  for (int i = 0; i < 5; ++i) comm.Run(kMs);
  const ProcessSnapshot snapshot = ReadSnapshot();
  EXPECT_EQ(snapshot.poller, PollerState::kNotStarted);
  EXPECT_EQ(snapshot.duration_source, "none");
  EXPECT_EQ(snapshot.completion_source, "proxy") << "as without a driver";
  EXPECT_FALSE(comm.Read().has_heartbeat);
  EXPECT_EQ(comm.Read().operations_source, CompletionSource::kNone);
  EXPECT_EQ(comm.Read().launches, 5u);
  EXPECT_EQ(Untimed(comm.Read(), UntimedReason::kNotTimed), 5u);
  EXPECT_EQ(gpu.EventsCreated(), 0u) << "nobody would look at them";
  int warnings = 0;
  for (const std::string& line : TakeLog()) {
    if (line.find("no CUDA events") != std::string::npos) ++warnings;
    if (line.find("no background thread") != std::string::npos) ++warnings;
  }
  EXPECT_EQ(warnings, 1) << "the one that says why";
}

// ---- exit ---------------------------------------------------------------------------------------

// Runs `job` in a child that exits; returns its status.
int ExitStatusOf(const std::function<void(FakeCuda&)>& job) {
  fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    setenv("NCCL_PULSE_LISTEN", "off", 1);
    FakeCuda& gpu = LoadFakeCuda();
    gpu.MakeCurrent(gpu.CreateContext(0));
    gpu.EndAtExit();  // CUDA is used before NCCL is
    job(gpu);
    exit(0);  // with all that a program does at its end
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  return WEXITSTATUS(status);
}

TEST(PollerTest, EndsBeforeTheDriver) {
  for (int run = 0; run < 10; ++run) {
    EXPECT_EQ(ExitStatusOf([run](FakeCuda& gpu) {
                auto* comm = new StreamCommunicator(gpu, 1);  // lives as long as the process
                for (int i = 0; i < 10; ++i) comm->Run(FakeCuda::kForever);
                usleep(static_cast<useconds_t>(run) * 3000);
              }),
              0);
  }
}

// A round that does not come back costs exit a bounded time: the child ends at all.
TEST(PollerTest, ExitDoesNotWaitForADriverThatBlocks) {
  EXPECT_EQ(ExitStatusOf([](FakeCuda& gpu) {
              auto* comm = new StreamCommunicator(gpu, 1);
              gpu.Block("cuEventQuery");
              comm->Run(FakeCuda::kForever);
              EXPECT_TRUE(WaitUntil([&] { return gpu.IsBlocked(); }));
            }),
            0);
}

// What is said at the end: nobody looks any more.
TEST(PollerTest, SaysThatItHasEnded) {
  EXPECT_EQ(ExitStatusOf([](FakeCuda& gpu) {
              // Handlers run backwards: this one after the plugin's.
              atexit([] {
                if (ReadSnapshot().poller != PollerState::kEnded) _exit(1);
              });
              auto* comm = new StreamCommunicator(gpu, 1);
              comm->Run(kMs);
              WaitForPoll();
              if (ReadSnapshot().poller != PollerState::kRunning) _exit(2);
            }),
            0);
}

// With the handlers of fork, or without: then the child does not even forget the thread.
pid_t ForkWith(bool handlers) {
#if defined(SYS_fork)
  if (!handlers) return static_cast<pid_t>(syscall(SYS_fork));
#endif
  return fork();
}

uint64_t g_pauses_at_exit = 0;

// A child of fork inherits the handler, and not the thread that was in a round.
TEST(PollerTest, AChildDoesNotWaitForItsParentsThread) {
  for (const bool handlers : {true, false}) {
    if (!handlers && kSanitized) continue;  // they need theirs
    RunWithGpu([handlers](FakeCuda& gpu) {
      // Runs after the plugin's. Only a child exits: the scenario itself ends without.
      atexit([] {
        if (Pauses() != g_pauses_at_exit) _exit(9);
      });
      StreamCommunicator comm(gpu, 1);
      gpu.Block("cuEventQuery");
      comm.Run(kMs);
      ASSERT_TRUE(WaitUntil([&] { return gpu.IsBlocked(); }));
      fflush(nullptr);
      const pid_t child = ForkWith(handlers);
      if (child == 0) {
        g_pauses_at_exit = Pauses();
        exit(0);
      }
      int status = 0;
      ASSERT_EQ(waitpid(child, &status, 0), child);
      EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
      gpu.Unblock();
    });
  }
}

// One that measures on its own has a thread of its own, which ends as its parent's would.
TEST(PollerTest, AChildThatMeasuresEndsItsOwn) {
  EXPECT_EQ(ExitStatusOf([](FakeCuda& gpu) {
              auto* parents = new StreamCommunicator(gpu, 1);
              parents->Run(kMs);
              fflush(nullptr);
              const pid_t child = fork();
              if (child == 0) {
                auto* own = new StreamCommunicator(gpu, 2);
                own->Run(FakeCuda::kForever);
                WaitForPoll();
                exit(0);
              }
              int status = 0;
              if (waitpid(child, &status, 0) != child || status != 0) _exit(3);
            }),
            0);
}

}  // namespace
}  // namespace nccl_pulse
