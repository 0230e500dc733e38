// A job that captures its calls into CUDA graphs.
#ifndef TESTS_PLUGIN_GRAPH_JOB_H_
#define TESTS_PLUGIN_GRAPH_JOB_H_

#include <gtest/gtest.h>

#include <string>

#include "plugin/cuda/graph_stamps.h"
#include "tests/plugin/stream_job.h"

namespace nccl_pulse {

inline constexpr uint64_t kBytes = 4096;

inline void CaptureCall(StreamCommunicator& comm, const char* op = "AllReduce",
                        uint64_t bytes = kBytes) {
  void* group = comm.StartGroup(true);
  const StreamCommunicator::Call call = comm.MakeCall(group, op, bytes, true);
  comm.Launch(group, 0);
  comm.Report(call);
  comm.StopGroup(group);
}

// A graph of so many calls, each with a launch. `roots`: so many of its first nodes stand side by
// side.
inline FakeCuda::Graph CaptureGraph(FakeCuda& gpu, StreamCommunicator& comm, uint32_t calls,
                                    size_t roots = 1) {
  gpu.BeginCapture(comm.stream());
  gpu.SetRoots(comm.stream(), roots);
  for (uint32_t i = 0; i < calls; ++i) CaptureCall(comm);
  EXPECT_TRUE(gpu.EndCapture(comm.stream()));
  return gpu.CapturedGraph(comm.stream());
}

inline std::string Kernels(int count) { return std::string(static_cast<size_t>(count), 'k'); }
// The shortest graph with a stamp.
inline const std::string kWithHead = "s" + Kernels(kFirstStamp + 1);

inline uint64_t Captures(CaptureFate fate) {
  return ReadSnapshot().graph_captures[static_cast<int>(fate)];
}

inline const ReplayedCallsSnapshot& Replayed(const CommunicatorSnapshot& communicator,
                                             const std::string& op) {
  static const ReplayedCallsSnapshot kNone{};
  static ReplayedCallsSnapshot found;
  for (const ReplayedCallsSnapshot& replayed : communicator.replayed) {
    if (replayed.op == op) return found = replayed;
  }
  return kNone;
}

}  // namespace nccl_pulse

#endif  // TESTS_PLUGIN_GRAPH_JOB_H_
