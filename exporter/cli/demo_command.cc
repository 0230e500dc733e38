// pulse demo: a recorded run through the real library, without a GPU.
#include <unistd.h>

#include <climits>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "exporter/cli/command.h"
#include "exporter/cli/installation.h"
#include "exporter/cli/replay_options.h"

namespace nccl_pulse {
namespace {

// Four ranks of PyTorch: distributed data parallel, sharded training, collectives of its own.
constexpr char kTrace[] = "h200x4-pytorch-ddp-fsdp";

// It made its first communicator and called nothing for 3.3 s: not what a demo is looked at for.
constexpr int64_t kStartUpNs = 3200000000;

constexpr char kHelp[] =
    R"(usage: pulse demo [flags]

Replays a recorded PyTorch run on four GPUs through the real library, over and over, so that the
metrics can be looked at without a GPU. Every recorded process is a process here. Stops on Ctrl-C.

  --library=PATH   the plugin library; default: the one that came with this program
  --api=1..7       profiler API version; default: the newest that the library exports

Kernel timing is on, so that the recorded GPU timestamps show as durations; set
NCCL_PULSE_TIMING=auto for the default of a real job. Exit status: 0 when stopped by
Ctrl-C, else as `pulse replay`.
)";

int Run(const std::vector<char*>& arguments) {
  if (!arguments.empty()) {
    std::fprintf(stderr, "pulse: demo takes no argument\n%s", kHelp);
    return kReplayUsage;
  }
  const std::string traces = FindTraces(kTrace);
  if (traces.empty()) {
    std::fprintf(stderr, "pulse: the recorded run %s is not in ../share/nccl-pulse/traces\n",
                 kTrace);
    return kReplayNoFolder;
  }
  // The recording has GPU timestamps, and without a GPU nothing else could time its operations.
  setenv("NCCL_PULSE_TIMING", "kernel", 0);
  // Each time round makes new communicators, and those that ended stay for ten minutes.
  setenv("NCCL_PULSE_SERIES_LIMIT", "30000", 0);
  ProcessesOptions options;
  options.replay.repeat = 0;
  options.replay.skip_ns = kStartUpNs;
  const int problem = FillReplayOptions(traces, &options);
  if (problem != kReplayDone) return problem;
  std::printf(
      "Replaying a recorded run of %zu ranks (%s). Stop with Ctrl-C.\n"
      "The metrics are at:\n",
      options.files.size(), kTrace);
  std::fflush(stdout);
  const int exit_status = ReplayProcesses(options);
  return exit_status == kReplayInterrupted ? kReplayDone : exit_status;
}

}  // namespace

const Command kDemoCommand = {"demo", "replay a recorded run and serve its metrics, without a GPU",
                              kHelp, Run};

}  // namespace nccl_pulse
