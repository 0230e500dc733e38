// Stamps in CUDA graphs: where they stand, what they count, and that nothing of the application
// depends on them.
#include "plugin/cuda/graph_stamps.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "tests/plugin/stream_job.h"

namespace nccl_pulse {
namespace {

const Environment kAuto{{"NCCL_PULSE_GRAPHS", "auto"}};
constexpr uint64_t kBytes = 4096;

void CaptureCall(StreamCommunicator& comm, const char* op = "AllReduce", uint64_t bytes = kBytes) {
  void* group = comm.StartGroup(true);
  const StreamCommunicator::Call call = comm.MakeCall(group, op, bytes, true);
  comm.Launch(group, 0);
  comm.Report(call);
  comm.StopGroup(group);
}

// A graph of so many calls, each with a launch.
FakeCuda::Graph CaptureGraph(FakeCuda& gpu, StreamCommunicator& comm, int calls) {
  gpu.BeginCapture(comm.stream());
  for (int i = 0; i < calls; ++i) CaptureCall(comm);
  EXPECT_TRUE(gpu.EndCapture(comm.stream()));
  return gpu.CapturedGraph(comm.stream());
}

std::string Kernels(int count) { return std::string(static_cast<size_t>(count), 'k'); }
// The shortest graph with a stamp.
const std::string kWithHead = "s" + Kernels(kFirstStamp + 1);

uint64_t Captures(CaptureFate fate) {
  return ReadSnapshot().graph_captures[static_cast<int>(fate)];
}

const ReplayedCallsSnapshot& Replayed(const CommunicatorSnapshot& communicator,
                                      const std::string& op) {
  static const ReplayedCallsSnapshot kNone{};
  static ReplayedCallsSnapshot found;
  for (const ReplayedCallsSnapshot& replayed : communicator.replayed) {
    if (replayed.op == op) return found = replayed;
  }
  return kNone;
}

TEST(GraphStamps, AreOffByDefault) {
  RunWithGpu([](FakeCuda& gpu) {
    StreamCommunicator comm(gpu, 1);
    FakeCuda::Graph graph = CaptureGraph(gpu, comm, 70);
    EXPECT_EQ(gpu.Nodes(graph), Kernels(70));
    EXPECT_EQ(gpu.Calls("cuModuleLoadData"), 0u);
    EXPECT_EQ(gpu.Calls("cuStreamGetCaptureInfo_v2"), 0u);
  });
}

TEST(GraphStamps, StandAtTheSamePositionsOfEachCapture) {
  RunWithGpu(
      [](FakeCuda& gpu) {
        StreamCommunicator comm(gpu, 1);
        const std::string nodes = "s" + Kernels(60) + "sks" + Kernels(59) + "sks" + Kernels(4);
        const int calls = 125;
        EXPECT_EQ(gpu.Nodes(CaptureGraph(gpu, comm, calls)), nodes);
        // Whatever was captured, called or sampled before.
        CaptureGraph(gpu, comm, 7);
        TimeEveryCall();
        for (int i = 0; i < 150; ++i) comm.Run();
        EXPECT_EQ(gpu.Nodes(CaptureGraph(gpu, comm, calls)), nodes);
        StreamCommunicator other(gpu, 2, comm.gpu_context());
        EXPECT_EQ(gpu.Nodes(CaptureGraph(gpu, other, calls)), nodes);
      },
      kAuto);
}

TEST(GraphStamps, CapturesAtTheSameTimeHaveTheirOwnPositions) {
  RunWithGpu(
      [](FakeCuda& gpu) {
        StreamCommunicator a(gpu, 1);
        StreamCommunicator b(gpu, 2, a.gpu_context());
        gpu.BeginCapture(a.stream());
        gpu.BeginCapture(b.stream());
        for (uint32_t i = 0; i <= kFirstStamp; ++i) {
          CaptureCall(a);
          if (i % 2 == 0) CaptureCall(b);
        }
        EXPECT_EQ(gpu.Nodes(gpu.CapturedGraph(a.stream())), kWithHead);
        EXPECT_EQ(gpu.Nodes(gpu.CapturedGraph(b.stream())), Kernels(kFirstStamp / 2 + 1));
        EXPECT_TRUE(gpu.EndCapture(a.stream()));
        EXPECT_TRUE(gpu.EndCapture(b.stream()));
      },
      kAuto);
}

TEST(GraphStamps, GraphOfFewLaunchesHasNone) {
  RunWithGpu(
      [](FakeCuda& gpu) {
        StreamCommunicator comm(gpu, 1);
        EXPECT_EQ(gpu.Nodes(CaptureGraph(gpu, comm, kFirstStamp)), Kernels(kFirstStamp));
        WaitForPoll();
        EXPECT_EQ(Captures(CaptureFate::kSeen), 1u);
        EXPECT_EQ(Captures(CaptureFate::kFollowed), 0u);
      },
      kAuto);
}

TEST(GraphStamps, EveryReplayIsCounted) {
  RunWithGpu(
      [](FakeCuda& gpu) {
        StreamCommunicator comm(gpu, 1);
        gpu.BeginCapture(comm.stream());
        for (int i = 0; i < 30; ++i) CaptureCall(comm);
        for (int i = 0; i < 12; ++i) CaptureCall(comm, "AllGather", 100);
        EXPECT_TRUE(gpu.EndCapture(comm.stream()));
        FakeCuda::Graph graph = gpu.CapturedGraph(comm.stream());
        WaitForPoll();
        EXPECT_EQ(comm.Read().graph_replays, 0u);
        for (int i = 0; i < 1000; ++i) gpu.Replay(graph);
        WaitForPoll();
        for (int i = 0; i < 77; ++i) gpu.Replay(graph);
        WaitForPoll();
        const CommunicatorSnapshot read = comm.Read();
        EXPECT_EQ(read.graph_replays, 1077u);
        EXPECT_EQ(read.graph_replays_in_flight, 0u);
        EXPECT_EQ(Replayed(read, "AllReduce").operations, 30u * 1077);
        EXPECT_EQ(Replayed(read, "AllReduce").bytes, 30u * 1077 * kBytes);
        EXPECT_EQ(Replayed(read, "AllGather").operations, 12u * 1077);
        EXPECT_EQ(Calls(read), 42u);  // what was called, as before
        EXPECT_EQ(Captures(CaptureFate::kFollowed), 1u);
      },
      kAuto);
}

TEST(GraphStamps, CommunicatorsOfOneGraphShareItsReplays) {
  RunWithGpu(
      [](FakeCuda& gpu) {
        StreamCommunicator a(gpu, 1);
        StreamCommunicator b(gpu, 2, a.gpu_context());
        b.UseStream(a.stream());
        gpu.BeginCapture(a.stream());
        CaptureCall(b);
        for (uint32_t i = 0; i < kFirstStamp; ++i) CaptureCall(a);
        CaptureCall(b, "Broadcast");
        EXPECT_TRUE(gpu.EndCapture(a.stream()));
        FakeCuda::Graph graph = gpu.CapturedGraph(a.stream());
        for (int i = 0; i < 9; ++i) gpu.Replay(graph);
        WaitForPoll();
        EXPECT_EQ(a.Read().graph_replays, 9u);
        EXPECT_EQ(Replayed(a.Read(), "AllReduce").operations, 9u * kFirstStamp);
        EXPECT_EQ(b.Read().graph_replays, 9u);
        EXPECT_EQ(Replayed(b.Read(), "AllReduce").operations, 9u);
        EXPECT_EQ(Replayed(b.Read(), "Broadcast").operations, 9u);
      },
      kAuto);
}

TEST(GraphStamps, ReplayThatStandsIsInFlight) {
  RunWithGpu(
      [](FakeCuda& gpu) {
        StreamCommunicator comm(gpu, 1);
        FakeCuda::Graph graph = CaptureGraph(gpu, comm, 70);
        gpu.Replay(graph);
        gpu.Replay(graph, 0, kFirstStamp + 2);  // past the first stamp
        WaitForPoll();
        const CommunicatorSnapshot standing = comm.Read();
        EXPECT_EQ(standing.graph_replays, 2u);
        EXPECT_EQ(standing.graph_replays_in_flight, 1u);
        AdvanceClock(60 * kSecond);
        WaitForPoll();
        EXPECT_EQ(comm.Read().graph_replays_in_flight, 1u);
        EXPECT_NEAR(static_cast<double>(comm.Read().graph_moved_realtime_ns),
                    static_cast<double>(standing.graph_moved_realtime_ns), 1e9);
        gpu.Replay(graph, kFirstStamp + 2);
        WaitForPoll();
        EXPECT_EQ(comm.Read().graph_replays_in_flight, 0u);
        EXPECT_GT(comm.Read().graph_moved_realtime_ns,
                  standing.graph_moved_realtime_ns + static_cast<int64_t>(50 * kSecond));
      },
      kAuto);
}

// A graph never has more than the budget allows, whatever its length.
TEST(GraphStamps, BudgetHolds) {
  uint32_t stamps = 0;
  for (uint32_t launch = 0; launch < 2000; ++launch) {
    stamps += StampsDueAt(launch) == StampsDue::kPair ? 2 : 0;
    stamps += StampsDueAt(launch) == StampsDue::kHead ? 1 : 0;
    EXPECT_LE(stamps * 2.0, (launch + 1) * 5.8 * 0.02) << launch;  // us
  }
  EXPECT_EQ(stamps, kMostStamps);
}

TEST(GraphStamps, LaunchesOfReplaysAreTimed) {
  RunWithGpu(
      [](FakeCuda& gpu) {
        StreamCommunicator comm(gpu, 1);
        gpu.BeginCapture(comm.stream());
        for (uint32_t i = 0; i < kPairSpacing; ++i) CaptureCall(comm);
        CaptureCall(comm, "AllGather", 100);
        CaptureCall(comm);
        EXPECT_TRUE(gpu.EndCapture(comm.stream()));
        FakeCuda::Graph graph = gpu.CapturedGraph(comm.stream());
        const uint64_t behind = kPairSpacing + 3;  // nodes: two stamps and the launch
        const auto timed = [&comm] { return Timed(comm.Read(), LatencyKind::kDurationGraph); };
        gpu.Replay(graph, 0, behind);
        gpu.Advance(50000);
        gpu.Replay(graph, behind);
        WaitForPoll();
        WaitForPoll();
        EXPECT_EQ(timed(), 1u);  // once, however often it is looked at
        // The next replay is between the two: neither its time nor a mixed one.
        gpu.Advance(1000000);
        gpu.Replay(graph, 0, behind);
        WaitForPoll();
        EXPECT_EQ(timed(), 1u);
        gpu.Advance(30000);
        gpu.Replay(graph, behind);
        WaitForPoll();
        const CommunicatorSnapshot read = comm.Read();
        for (const LatencySnapshot& latency : read.latencies) {
          if (latency.kind != LatencyKind::kDurationGraph) continue;
          EXPECT_EQ(latency.op, "AllGather");
          EXPECT_EQ(latency.histogram.Count(), 2u);
          EXPECT_EQ(latency.histogram.sum_ns, 80000u);
          EXPECT_EQ(latency.bytes, 200u);
        }
        EXPECT_EQ(timed(), 2u);
        EXPECT_EQ(Ignored(ReadSnapshot()), 0u);
      },
      kAuto);
}

// A launch of a group has no time that is an operation's.
TEST(GraphStamps, LaunchOfSeveralCallsIsNotTimed) {
  RunWithGpu(
      [](FakeCuda& gpu) {
        StreamCommunicator comm(gpu, 1);
        gpu.BeginCapture(comm.stream());
        for (uint32_t i = 0; i < kPairSpacing; ++i) CaptureCall(comm);
        void* group = comm.StartGroup(true);
        comm.MakeCall(group, "Send", 100, true);
        comm.MakeCall(group, "Recv", 100, true);
        comm.Launch(group, 0);
        comm.StopGroup(group);
        EXPECT_TRUE(gpu.EndCapture(comm.stream()));
        FakeCuda::Graph graph = gpu.CapturedGraph(comm.stream());
        EXPECT_EQ(gpu.Nodes(graph), "s" + Kernels(60) + "sks");
        gpu.Replay(graph, 0, kPairSpacing + 3);
        gpu.Advance(50000);
        gpu.Replay(graph, kPairSpacing + 3);
        WaitForPoll();
        EXPECT_EQ(comm.Read().graph_replays, 1u);
        EXPECT_EQ(Timed(comm.Read(), LatencyKind::kDurationGraph), 0u);
        EXPECT_EQ(Replayed(comm.Read(), "Send").operations, 1u);
      },
      kAuto);
}

// What NCCL does wrong elsewhere: a stop that comes twice, late or never.
TEST(GraphStamps, StopsThatAreWrongAddNothing) {
  RunWithGpu(
      [](FakeCuda& gpu) {
        StreamCommunicator comm(gpu, 1);
        gpu.BeginCapture(comm.stream());
        for (uint32_t i = 0; i < kPairSpacing; ++i) CaptureCall(comm);
        void* group = comm.StartGroup(true);
        comm.MakeCall(group, "AllReduce", 100, true);
        void* launch = comm.StartLaunch(group);
        gpu.Launch(comm.stream(), 0);
        ASSERT_NE(launch, nullptr);
        comm.StopLaunch(launch);
        comm.StopLaunch(launch);
        comm.StopGroup(group);
        EXPECT_TRUE(gpu.EndCapture(comm.stream()));
        comm.StopLaunch(launch);
        EXPECT_EQ(gpu.Nodes(gpu.CapturedGraph(comm.stream())), "s" + Kernels(60) + "sks");
        EXPECT_EQ(Ignored(ReadSnapshot(), IgnoredReason::kRepeatedStop), 2u);
        comm.Finalize();
        comm.StopLaunch(launch);
        EXPECT_EQ(Ignored(ReadSnapshot(), IgnoredReason::kStaleHandle), 1u);
      },
      kAuto);
}

// Applications that capture anew at each step.
TEST(GraphStamps, GraphsThatAreGoneMakeRoom) {
  RunWithGpu(
      [](FakeCuda& gpu) {
        StreamCommunicator comm(gpu, 1);
        uint64_t replays = 0;
        for (int round = 0; round < 3; ++round) {
          std::vector<FakeCuda::Graph> graphs;
          for (uint32_t i = 0; i < GraphStamps::kMostRecords; ++i) {
            graphs.push_back(CaptureGraph(gpu, comm, kFirstStamp + 1));
            ASSERT_EQ(gpu.Nodes(graphs.back()), kWithHead);
            gpu.Replay(graphs.back());
            ++replays;
          }
          for (FakeCuda::Graph graph : graphs) gpu.DestroyGraph(graph);
          WaitForPoll();
          AdvanceClock(10 * kSecond);
          WaitForPoll();
        }
        EXPECT_EQ(comm.Read().graph_replays, replays);
        EXPECT_EQ(Captures(CaptureFate::kFollowed), 3u * GraphStamps::kMostRecords);
        EXPECT_EQ(Captures(CaptureFate::kNoRoom), 0u);
      },
      kAuto);
}

TEST(GraphStamps, PlacementDoesNotDependOnRoom) {
  RunWithGpu(
      [](FakeCuda& gpu) {
        StreamCommunicator comm(gpu, 1);
        for (uint32_t i = 0; i < GraphStamps::kMostRecords; ++i) {
          CaptureGraph(gpu, comm, kFirstStamp + 1);
        }
        FakeCuda::Graph late = CaptureGraph(gpu, comm, kFirstStamp + 1);
        EXPECT_EQ(gpu.Nodes(late), kWithHead);
        gpu.Replay(late);
        WaitForPoll();
        EXPECT_EQ(comm.Read().graph_replays, 0u);
        EXPECT_EQ(Captures(CaptureFate::kNoRoom), 1u);
      },
      kAuto);
}

// The graph's end would not be known.
TEST(GraphStamps, GraphThatCannotBeWatchedIsNotCounted) {
  RunWithGpu(
      [](FakeCuda& gpu) {
        StreamCommunicator comm(gpu, 1);
        gpu.Fail("cuGraphRetainUserObject", 801);
        for (uint32_t i = 0; i < 2 * GraphStamps::kMostRecords; ++i) {
          if (i % 200 == 0) WaitForPoll();
          if (i % 200 == 0) AdvanceClock(10 * kSecond);
          FakeCuda::Graph graph = CaptureGraph(gpu, comm, kFirstStamp + 1);
          ASSERT_EQ(gpu.Nodes(graph), kWithHead);
          gpu.Replay(graph);
        }
        gpu.StopFailing();
        WaitForPoll();
        AdvanceClock(10 * kSecond);
        WaitForPoll();
        gpu.Replay(CaptureGraph(gpu, comm, kFirstStamp + 1));
        WaitForPoll();
        EXPECT_EQ(comm.Read().graph_replays, 1u);
        EXPECT_EQ(Captures(CaptureFate::kNoRoom), 2u * GraphStamps::kMostRecords);
      },
      kAuto);
}

TEST(GraphStamps, DriverThatCannotHasNoneForGood) {
  RunWithGpu(
      [](FakeCuda& gpu) {
        gpu.Fail("cuModuleLoadData", 218);
        StreamCommunicator comm(gpu, 1);
        StreamCommunicator other(gpu, 2, comm.gpu_context());
        int lines = 0;
        for (const std::string& line : TakeLog()) {
          lines += line.find("NCCL_PULSE_GRAPHS") != std::string::npos ? 1 : 0;
        }
        EXPECT_EQ(lines, 1);
        EXPECT_EQ(gpu.Nodes(CaptureGraph(gpu, comm, 70)), Kernels(70));
        gpu.StopFailing();
        StreamCommunicator third(gpu, 3, comm.gpu_context());
        EXPECT_EQ(gpu.Nodes(CaptureGraph(gpu, comm, 70)), Kernels(70));
      },
      kAuto);
}

TEST(GraphStamps, LaunchThatIsRefusedIsTheLast) {
  RunWithGpu(
      [](FakeCuda& gpu) {
        StreamCommunicator comm(gpu, 1);
        gpu.Fail("cuGraphAddKernelNode_v2", 1);
        EXPECT_EQ(gpu.Nodes(CaptureGraph(gpu, comm, 70)), Kernels(70));
        gpu.StopFailing();
        EXPECT_EQ(gpu.Nodes(CaptureGraph(gpu, comm, 70)), Kernels(70));
        WaitForPoll();
        EXPECT_EQ(Captures(CaptureFate::kRefused), 1u);
      },
      kAuto);
}

// By an application's mistake on another thread: the next capture is as if nothing had been.
TEST(GraphStamps, CaptureThatEndsMeanwhileIsNotTheLast) {
  RunWithGpu(
      [](FakeCuda& gpu) {
        StreamCommunicator comm(gpu, 1);
        gpu.Fail("cuGraphAddKernelNode_v2", 901);  // CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
        CaptureGraph(gpu, comm, kFirstStamp + 1);
        gpu.StopFailing();
        FakeCuda::Graph graph = CaptureGraph(gpu, comm, kFirstStamp + 1);
        EXPECT_EQ(gpu.Nodes(graph), kWithHead);
        WaitForPoll();
        EXPECT_EQ(Captures(CaptureFate::kRefused), 0u);
      },
      kAuto);
}

// Threads that make many small graphs while another one makes a long one.
TEST(GraphStamps, LongCaptureKeepsItsPositionBesideManyOthers) {
  RunWithGpu(
      [](FakeCuda& gpu) {
        StreamCommunicator comm(gpu, 1);
        StreamCommunicator other(gpu, 2, comm.gpu_context());
        gpu.BeginCapture(comm.stream());
        for (uint32_t i = 0; i <= kFirstStamp; ++i) {
          CaptureCall(comm);
          for (int k = 0; k < 20; ++k) CaptureGraph(gpu, other, 1);
        }
        EXPECT_TRUE(gpu.EndCapture(comm.stream()));
        EXPECT_EQ(gpu.Nodes(gpu.CapturedGraph(comm.stream())), kWithHead);
      },
      kAuto);
}

TEST(GraphStamps, CodeIsLoadedOnceAndEndsNoCapture) {
  RunWithGpu(
      [](FakeCuda& gpu) {
        FakeCuda::Context context = gpu.CreateContext(0);
        FakeCuda::Stream captured = gpu.CreateStream(context);
        gpu.BeginCapture(captured);
        StreamCommunicator comm(gpu, 1, context);
        StreamCommunicator other(gpu, 2, context);
        EXPECT_TRUE(gpu.EndCapture(captured));
        EXPECT_EQ(gpu.Calls("cuModuleLoadData"), 1u);
        StreamCommunicator elsewhere(gpu, 3, 1);
        EXPECT_EQ(gpu.Calls("cuModuleLoadData"), 2u);
        const std::string nodes = kWithHead;
        gpu.MakeCurrent(context);
        EXPECT_EQ(gpu.Nodes(CaptureGraph(gpu, comm, kFirstStamp + 1)), nodes);
        gpu.MakeCurrent(elsewhere.gpu_context());
        EXPECT_EQ(gpu.Nodes(CaptureGraph(gpu, elsewhere, kFirstStamp + 1)), nodes);
      },
      kAuto);
}

TEST(GraphStamps, ContextThatWasResetHasNoneUntilItIsPreparedAgain) {
  RunWithGpu(
      [](FakeCuda& gpu) {
        StreamCommunicator comm(gpu, 1);
        gpu.ResetContext(comm.gpu_context());
        EXPECT_EQ(gpu.Nodes(CaptureGraph(gpu, comm, 70)), Kernels(70));
        StreamCommunicator later(gpu, 2, comm.gpu_context());
        FakeCuda::Graph graph = CaptureGraph(gpu, later, kFirstStamp + 1);
        EXPECT_EQ(gpu.Nodes(graph), kWithHead);
        gpu.Replay(graph);
        WaitForPoll();
        EXPECT_EQ(later.Read().graph_replays, 1u);
      },
      kAuto);
}

// As threads of one process that each have a GPU do.
TEST(GraphStamps, ThreadsCaptureBesideEachOther) {
  RunWithGpu(
      [](FakeCuda& gpu) {
        constexpr int kThreads = 4;
        constexpr int kRounds = 30;
        std::vector<std::unique_ptr<StreamCommunicator>> comms;
        for (int i = 0; i < kThreads; ++i) {
          comms.push_back(std::make_unique<StreamCommunicator>(gpu, 1 + i, i));
        }
        std::vector<std::thread> threads;
        for (int i = 0; i < kThreads; ++i) {
          threads.emplace_back([&gpu, &comm = *comms[i]] {
            gpu.MakeCurrent(comm.gpu_context());
            for (int round = 0; round < kRounds; ++round) {
              FakeCuda::Graph graph = CaptureGraph(gpu, comm, kFirstStamp + 1);
              EXPECT_EQ(gpu.Nodes(graph), kWithHead);
              gpu.Replay(graph);
              gpu.Replay(graph);
            }
          });
        }
        for (std::thread& thread : threads) thread.join();
        WaitForPoll();
        for (const auto& comm : comms) EXPECT_EQ(comm->Read().graph_replays, 2u * kRounds);
      },
      kAuto);
}

}  // namespace
}  // namespace nccl_pulse
