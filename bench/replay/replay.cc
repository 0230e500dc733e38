// Replays recorded NCCL callbacks into a plugin library.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "bench/replay/processes.h"
#include "bench/replay/profiler_library.h"
#include "bench/replay/trace_file.h"

ABSL_FLAG(std::string, library, "plugin/libnccl-profiler-pulse.so", "the plugin library");
ABSL_FLAG(int, api, 0, "profiler API version 1 to 7; 0: the newest that the library exports");
ABSL_FLAG(double, speed, 1, "recorded seconds per second; 0: as fast as possible");
ABSL_FLAG(uint64_t, repeat, 1, "how often, each time with new communicators; 0: until stopped");
ABSL_FLAG(double, hold, 0,
          "seconds that the processes live on after the last callback, to read the endpoint");
ABSL_FLAG(std::string, clock, "real",
          "recorded: the plugin's monotonic clock shows the trace's own times, so latencies are "
          "exactly the recorded ones at any speed");

namespace nccl_pulse {
namespace {

constexpr char kUsage[] =
    R"(replays recorded NCCL profiler callbacks into a plugin library, as NCCL would make them for the
event mask that the plugin asks for.

  replay [flags] TRACE_DIR

TRACE_DIR has *.jsonl or *.jsonl.xz files (tests/traces): each is replayed by a separate process. The
environment is passed on, so NCCL_PULSE_* and NCCL_DEBUG work as in a job.

Exit status: 0 done; 1 bad usage; 2 folder or file cannot be read; 3 no trace file in the folder;
4 a broken line or file; 5 the library does not load; 6 the library does not export the version;
7 a process crashed; 130 stopped by Ctrl-C.)";

int Fail(int exit, const std::string& problem) {
  std::fprintf(stderr, "replay: %s\n", problem.c_str());
  return exit;
}

int Main(const std::vector<char*>& arguments) {
  if (arguments.size() != 2) return Fail(kReplayUsage, "takes one trace folder; --help says more");
  ProcessesOptions options;
  options.hold_s = absl::GetFlag(FLAGS_hold);
  ReplayOptions& replay = options.replay;
  replay.library = absl::GetFlag(FLAGS_library);
  replay.api = absl::GetFlag(FLAGS_api);
  replay.speed = absl::GetFlag(FLAGS_speed);
  replay.repeat = absl::GetFlag(FLAGS_repeat);
  const std::string clock = absl::GetFlag(FLAGS_clock);
  replay.recorded_clock = clock == "recorded";
  if (!(replay.speed >= 0)) return Fail(kReplayUsage, "--speed is negative");
  if (!(options.hold_s >= 0 && options.hold_s <= 1e9)) {
    return Fail(kReplayUsage, "--hold is not between 0 and 1e9 seconds");
  }
  if (replay.api != 0 && (replay.api < kOldestApi || replay.api > kNewestApi)) {
    return Fail(kReplayUsage, "--api is no version from 1 to 7");
  }
  if (!replay.recorded_clock && clock != "real") {
    return Fail(kReplayUsage, "--clock is neither real nor recorded");
  }
  // The plugin prefers a CPU counter, which cannot be replaced. No other thread exists yet.
  if (replay.recorded_clock) {
    setenv("NCCL_PULSE_CLOCK", "monotonic", 1);
  }
  ReplayError error;
  auto files = ListTraceFiles(arguments[1], &error);
  if (!files) return Fail(error.exit, error.text);
  options.files = *std::move(files);
  return ReplayProcesses(options);
}

}  // namespace
}  // namespace nccl_pulse

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage(nccl_pulse::kUsage);
  return nccl_pulse::Main(absl::ParseCommandLine(argc, argv));
}
