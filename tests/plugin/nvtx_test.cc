// NCCL_PULSE_NVTX=on: calls as ranges, to a tool that listens.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/plugin/nvtx_tool.h"
#include "tests/plugin/older_api.h"
#include "tests/plugin/stream_job.h"

namespace nccl_pulse {
namespace {

const Environment kOn{{"NCCL_PULSE_NVTX", "on"}, {"NVTX_INJECTION64_PATH", kNvtxTool}};

bool IsLoaded() {
  void* library = dlopen(kNvtxTool, RTLD_NOW | RTLD_NOLOAD);
  if (library != nullptr) dlclose(library);
  return library != nullptr;
}

std::vector<NvtxToolEvent> Told() {
  void* library = dlopen(kNvtxTool, RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr) return {};
  const auto events = reinterpret_cast<NvtxToolEventsFunction>(dlsym(library, "NvtxToolEvents"));
  uint32_t count = 0;
  const char* domain = nullptr;
  const NvtxToolEvent* first = events(&count, &domain);
  if (count > 0) {
    EXPECT_STREQ(domain, "NCCL Pulse");
  }
  return {first, first + count};
}

// "(name(name))": as the brackets of the thread that made them.
std::string Written(const std::vector<NvtxToolEvent>& events) {
  std::string text;
  for (const NvtxToolEvent& each : events) text += each.kind + std::string(each.name);
  return text;
}

TEST(NvtxTest, CallsAreRangesWithinTheirGroups) {
  RunWithGpu(
      [](FakeCuda& gpu) {
        StreamCommunicator comm(gpu, 0xabc);
        comm.Run(1000, "AllReduce", 25 << 20);
        comm.RunGroup(1000, {{"Send", 1000}, {"Recv", 4096}});
        EXPECT_EQ(Written(Told()),
                  "(one call on stream(AllReduce 25 MiB on stream))"
                  "(group, begun on stream(Send 1000 B on stream)(Recv 4 KiB on stream))");
      },
      kOn);
}

TEST(NvtxTest, EveryThreadsRangesAreBalancedAndNothingElseChanges) {
  constexpr int kThreads = 3;
  constexpr int kCalls = 400;  // the ends of the first 256 groups are asked for anyway
  RunWithGpu(
      [](FakeCuda& gpu) {
        std::vector<std::unique_ptr<StreamCommunicator>> comms;
        for (int i = 0; i < kThreads; ++i) {
          comms.push_back(std::make_unique<StreamCommunicator>(gpu, 1 + i, i));
        }
        std::vector<std::thread> threads;
        for (const auto& comm : comms) {
          threads.emplace_back([&comm] {
            for (int i = 0; i < kCalls; ++i) {
              comm->Run(1000);
              comm->RunUnreported(1000);
              comm->StopGroup(comm->StartGroup());  // in which nothing is called
              void* captured = comm->StartGroup(true);
              comm->MakeCall(captured, "AllGather", 64, true);
              comm->StopGroup(captured);
            }
          });
        }
        for (std::thread& thread : threads) thread.join();
        std::map<uint64_t, int> depth;
        int pushes = 0;
        for (const NvtxToolEvent& each : Told()) {
          ASSERT_NE(each.kind, '?');
          if (each.kind == ')') --depth[each.thread];
          ASSERT_EQ(depth[each.thread], each.depth);
          if (each.kind == '(') {
            ++depth[each.thread];
            ++pushes;
          }
        }
        for (const auto& [thread, open] : depth) EXPECT_EQ(open, 0);
        EXPECT_EQ(pushes, kThreads * kCalls * 7);
        gpu.Advance(kSecond);
        WaitForPoll();
        for (const auto& comm : comms) {
          EXPECT_EQ(Calls(comm->Read()), uint64_t{kCalls} * 3);
          EXPECT_EQ(Operations(comm->Read()), uint64_t{kCalls});
          EXPECT_EQ(comm->Read().launches, comm->Read().launches_completed);
        }
        EXPECT_EQ(IgnoredByName(ReadSnapshot()), (std::map<std::string, uint64_t>{}));
      },
      kOn);
}

TEST(NvtxTest, WhatACommunicatorThatIsOverCallsHasNoRangeAndIsIgnoredOnce) {
  RunWithGpu(
      [](FakeCuda& gpu) {
        StreamCommunicator comm(gpu, 1);
        comm.Finalize();
        void* group = comm.StartGroup();
        EXPECT_EQ(group, nullptr);
        EXPECT_EQ(comm.MakeCall(group, "AllReduce", 64).handle, nullptr);
        comm.StopGroup(group);
        EXPECT_EQ(Written(Told()), "");
        EXPECT_EQ(Ignored(ReadSnapshot()), 2u) << "the group and the call";
      },
      kOn);
}

// What is measured of a job, which must not depend on whether somebody listens.
std::string Measured(const Environment& environment) {
  int answer[2];
  EXPECT_EQ(pipe(answer), 0);
  RunWithGpu(
      [&](FakeCuda& gpu) {
        StreamCommunicator comm(gpu, 1);
        TimeEveryCall();
        for (int i = 0; i < 300; ++i) {
          comm.Run(1000);
          comm.RunGroup(1000, {{"Send", 100}, {"Recv", 100}});
          comm.RunUnreported(1000);
          gpu.Advance(kMs);
          WaitForPoll();
        }
        const CommunicatorSnapshot measured = comm.Read();
        const std::string text =
            std::to_string(measured.launches) + " launches, " +
            std::to_string(TimedOperations(measured)) + " timed, " +
            std::to_string(Untimed(measured, UntimedReason::kGrouped)) + " grouped, " +
            std::to_string(Untimed(measured, UntimedReason::kNotSampled)) + " not sampled";
        EXPECT_EQ(write(answer[1], text.data(), text.size()), static_cast<ssize_t>(text.size()));
      },
      environment);
  close(answer[1]);
  std::array<char, 256> text{};
  EXPECT_GT(read(answer[0], text.data(), text.size() - 1), 0);
  close(answer[0]);
  return text.data();
}

TEST(NvtxTest, WhatIsMeasuredDoesNotDependOnIt) {
  Environment on = kOn;
  on["NCCL_PULSE_TIMED_LAUNCHES_PER_SECOND"] = "one-in-1";
  EXPECT_EQ(Measured(on), Measured({{"NCCL_PULSE_TIMED_LAUNCHES_PER_SECOND", "one-in-1"}}));
}

TEST(NvtxTest, OffLoadsNothing) {
  RunWithGpu(
      [](FakeCuda& gpu) {
        StreamCommunicator comm(gpu, 1);
        comm.Run(1000);
        EXPECT_FALSE(IsLoaded());
      },
      {{"NVTX_INJECTION64_PATH", kNvtxTool}});
}

TEST(NvtxTest, OfOldVersionsOperationsAreMarks) {
  RunInChild(kOn, [] {
    OlderCommunicator(0xabc).Enqueue();
    EXPECT_EQ(Written(Told()), ".AllReduce 1 KiB on 0000000000000abc");
  });
}

TEST(NvtxTest, WithoutAToolOneLineSaysWhyAndTheJobGoesOn) {
  const std::map<std::string, Environment> cases = {
      {"NVTX_INJECTION64_PATH is not set: no tool listens", {}},
      {"cannot open shared object file", {{"NVTX_INJECTION64_PATH", "/nowhere/tool.so"}}},
      {"has no InitializeInjectionNvtx2", {{"NVTX_INJECTION64_PATH", kLibrary}}},
      {"did not want to listen",
       {{"NVTX_INJECTION64_PATH", kNvtxTool}, {"NVTX_TOOL_DECLINES", "1"}}},
      {"the tool takes no ranges in domains",
       {{"NVTX_INJECTION64_PATH", kNvtxTool}, {"NVTX_TOOL_WITHOUT_RANGES", "1"}}},
      {"the tool made us no domain",
       {{"NVTX_INJECTION64_PATH", kNvtxTool}, {"NVTX_TOOL_WITHOUT_DOMAINS", "1"}}}};
  for (const auto& [why, variables] : cases) {
    Environment environment = variables;
    environment["NCCL_PULSE_NVTX"] = "on";
    RunInChild(environment, [why = why] {
      NcclCommunicator first(1);
      NcclCommunicator second(2);
      first.RunWithProxy();
      EXPECT_EQ(Calls(Find(ReadSnapshot(), 1)), 1u);
      int lines = 0;
      for (const std::string& line : TakeLog()) {
        if (line.find("NCCL_PULSE_NVTX=on has no effect: ") == line.npos) continue;
        ++lines;
        EXPECT_NE(line.find(why), line.npos) << line;
      }
      EXPECT_EQ(lines, 1) << why;
      EXPECT_EQ(Told().size(), 0u);
    });
  }
}

}  // namespace
}  // namespace nccl_pulse
