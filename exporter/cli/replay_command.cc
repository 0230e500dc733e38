// pulse replay: makes recorded callbacks of NCCL into a plugin library.
#include <cstdint>
#include <cstdio>
#include <string>

#include "absl/flags/flag.h"
#include "exporter/cli/command.h"
#include "exporter/cli/replay_options.h"

ABSL_FLAG(double, speed, 1, "recorded seconds per second; 0: as fast as possible");
ABSL_FLAG(uint64_t, repeat, 1, "how often the trace is replayed; 0: until stopped");
ABSL_FLAG(double, hold, 0, "seconds that the processes live on after the last callback");

namespace nccl_pulse {
namespace {

constexpr char kHelp[] =
    R"(usage: pulse replay [flags] TRACE_DIR

Replays recorded NCCL profiler callbacks into a plugin library, as NCCL would make them for the event
mask that the plugin asks for. TRACE_DIR holds *.jsonl or *.jsonl.xz files: each is replayed by a
process of its own. The environment is passed on, so NCCL_PULSE_* and NCCL_DEBUG work as in a job.

  --library=PATH   the plugin library; default: the one that came with this program
  --api=1..7       profiler API version; default: the newest that the library exports
  --speed=F        recorded seconds per second (default 1); 0: as fast as possible
  --repeat=N       replay N times, each time with new communicators (default 1); 0: until stopped
  --hold=SECONDS   keep the processes alive after the last callback, to read the endpoint (default 0)
  --clock=real|recorded
                   recorded: the plugin's monotonic clock shows the trace's own times, so latencies
                   are exactly the recorded ones at any speed (default real)

Exit status: 0 done; 1 bad usage; 2 folder or file cannot be read; 3 no trace file in the folder;
4 a broken line or file; 5 the library does not load; 6 the library does not export the version;
7 a process crashed; 130 stopped by Ctrl-C.
)";

int Run(const std::vector<char*>& arguments) {
  if (arguments.size() != 1) {
    std::fprintf(stderr, "pulse: replay takes one trace folder\n%s", kHelp);
    return kReplayUsage;
  }
  ProcessesOptions options;
  options.replay.speed = absl::GetFlag(FLAGS_speed);
  options.replay.repeat = absl::GetFlag(FLAGS_repeat);
  options.hold_s = absl::GetFlag(FLAGS_hold);
  if (!(options.replay.speed >= 0)) {
    std::fprintf(stderr, "pulse: --speed is negative\n");
    return kReplayUsage;
  }
  if (!(options.hold_s >= 0 && options.hold_s <= 1e9)) {
    std::fprintf(stderr, "pulse: --hold is not between 0 and 1e9 seconds\n");
    return kReplayUsage;
  }
  const int problem = FillReplayOptions(arguments[0], &options);
  return problem != kReplayDone ? problem : ReplayProcesses(options);
}

}  // namespace

const Command kReplayCommand = {"replay", "replay recorded NCCL callbacks into a plugin library",
                                kHelp, Run};

}  // namespace nccl_pulse
