#include <cstdio>
#include <cstdlib>
#include <string>

#include "exporter/cli/demo.h"
#include "exporter/cli/installation.h"
#include "exporter/cli/replay_options.h"

namespace nccl_pulse {
namespace {

// Four ranks of PyTorch: distributed data parallel, sharded training, and plain collectives.
constexpr char kTrace[] = "h200x4-pytorch-ddp-fsdp";

// Leaves out the first 3.3 s, in which it made its first communicator and called nothing.
constexpr int64_t kStartUpNs = 3200000000;

}  // namespace

int RunRecordedDemo() {
  const std::string traces = FindTraces(kTrace);
  if (traces.empty()) {
    std::fprintf(stderr,
                 "pulse: the recorded run %s is not in ../share/nccl-pulse/traces beside this "
                 "program's folder\n",
                 kTrace);
    return kReplayNoFolder;
  }
  // The recording has GPU timestamps. Without a GPU nothing else could time its operations.
  setenv("NCCL_PULSE_TIMING", "kernel", 0);  // NOLINT(concurrency-mt-unsafe)
  ProcessesOptions options;
  options.replay.repeat = 0;
  // New communicators would each stay on the page for ten minutes.
  options.replay.keep_communicators = true;
  options.replay.skip_ns = kStartUpNs;
  const int problem = FillReplayOptions(traces, &options);
  if (problem != kReplayDone) return problem;
  std::printf(
      "Replaying a recorded run of %zu ranks (%s). Stop with Ctrl-C.\n"
      "The metrics are at the following address, and a page for people is at / there:\n",
      options.files.size(), kTrace);
  std::fflush(stdout);
  const int exit_status = ReplayProcesses(options);
  return exit_status == kReplayInterrupted ? kReplayDone : exit_status;
}

}  // namespace nccl_pulse
