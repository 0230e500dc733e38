// pulse demo: what the product shows, without a GPU.
#include <cstdio>

#include "absl/flags/declare.h"
#include "absl/flags/flag.h"
#include "exporter/cli/command.h"
#include "exporter/cli/demo.h"
#include "plugin/replay/processes.h"

ABSL_DECLARE_FLAG(int, api);
ABSL_FLAG(bool, recorded, false, "replay a recorded PyTorch run instead");

namespace nccl_pulse {
namespace {

constexpr char kHelp[] =
    R"(usage: pulse demo [flags]

Runs a training job of four ranks that is in balance, then has a straggler, then hangs, then goes on,
round and round, and says what to look at. GPUs and NCCL are simulated; the plugin, its callbacks, the
endpoint and the verdicts are real. No GPU is needed. Stops on Ctrl-C.

  --recorded       replay a recorded PyTorch run on four GPUs instead, over and over; it neither lags
                   nor hangs. Kernel timing is on, so that the recorded GPU timestamps show as durations
  --library=PATH   the plugin library; default: the one that came with this program
  --api=1..7       profiler API version; default: the newest that the library exports; --recorded only

Environment variables work as in a job: NCCL_PULSE_LISTEN=:9500 selects another port. If
NCCL_PULSE_HANG_SECONDS is not set it is 4 instead of 10, so that a hang shows soon; an agent on this node
uses its own --hang-after.

Exit status: 0 stopped by Ctrl-C; 1 bad usage; 2 the recorded run cannot be read; 5 a library does not
load; 6 it does not export the version; 7 a process crashed, or nothing can be served.
)";

int Run(const std::vector<char*>& arguments) {
  if (!arguments.empty()) {
    std::fprintf(stderr, "pulse: demo takes no argument\n%s", kHelp);
    return kReplayUsage;
  }
  if (absl::GetFlag(FLAGS_api) != 0 && !absl::GetFlag(FLAGS_recorded)) {
    std::fprintf(stderr, "pulse: --api is for --recorded: the simulated NCCL is 2.28, API v5\n");
    return kReplayUsage;
  }
  return absl::GetFlag(FLAGS_recorded) ? RunRecordedDemo() : RunSimulatedDemo();
}

}  // namespace

const Command kDemoCommand = {
    "demo", "show a job that lags and hangs on simulated GPUs, with its page", kHelp, Run};

}  // namespace nccl_pulse
