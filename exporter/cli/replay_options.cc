#include "exporter/cli/replay_options.h"

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "absl/flags/flag.h"
#include "exporter/cli/installation.h"
#include "plugin/replay/profiler_library.h"
#include "plugin/replay/trace_file.h"

ABSL_FLAG(std::string, library, "", "the plugin library; default: the one of this installation");
ABSL_FLAG(int, api, 0, "profiler API version 1 to 7; default: the newest that the library exports");
ABSL_FLAG(std::string, clock, "real",
          "what the plugin's monotonic clock shows: real, or recorded (the trace's own times)");

namespace nccl_pulse {

int FillReplayOptions(const std::string& folder, ProcessesOptions* options) {
  options->replay.library = absl::GetFlag(FLAGS_library);
  if (options->replay.library.empty()) options->replay.library = FindPluginLibrary();
  if (options->replay.library.empty()) {
    std::fprintf(stderr,
                 "pulse: libnccl-profiler-pulse.so is neither beside this program nor in "
                 "../lib; name it with --library\n");
    return kReplayNoLibrary;
  }
  options->replay.api = absl::GetFlag(FLAGS_api);
  if (options->replay.api != 0 &&
      (options->replay.api < kOldestApi || options->replay.api > kNewestApi)) {
    std::fprintf(stderr, "pulse: --api=%d: not a version from %d to %d\n", options->replay.api,
                 kOldestApi, kNewestApi);
    return kReplayUsage;
  }
  const std::string clock = absl::GetFlag(FLAGS_clock);
  if (clock != "real" && clock != "recorded") {
    std::fprintf(stderr, "pulse: --clock=%s: neither real nor recorded\n", clock.c_str());
    return kReplayUsage;
  }
  options->replay.recorded_clock = clock == "recorded";
  // The plugin prefers a CPU counter, which nothing can replace. No other thread exists yet.
  if (options->replay.recorded_clock) {
    setenv("NCCL_PULSE_CLOCK", "monotonic", 1);  // NOLINT(concurrency-mt-unsafe)
  }
  ReplayError error;
  auto files = ListTraceFiles(folder, &error);
  if (!files) {
    std::fprintf(stderr, "pulse: %s\n", error.text.c_str());
    return error.exit;
  }
  options->files = *std::move(files);
  return kReplayDone;
}

}  // namespace nccl_pulse
