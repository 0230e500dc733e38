// Replays recorded NCCL callbacks into a plugin library.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "bench/replay/processes.h"
#include "bench/replay/profiler_library.h"
#include "bench/replay/trace.h"
#include "exporter/cli/flags/flags.h"

namespace nccl_pulse {
namespace {

constexpr char kUsage[] =
    R"(Replays recorded NCCL profiler callbacks into a plugin library, as NCCL would make them for the
event mask that the plugin asks for.

  replay [flags] TRACE_DIR

TRACE_DIR has *.jsonl or *.jsonl.xz files (tests/traces): each is replayed by a separate process. The
environment is passed on, so NCCL_PULSE_* and NCCL_DEBUG work as in a job.

  --library FILE  the plugin; default plugin/libnccl-profiler-pulse.so
  --api N         profiler API version 1 to 7; default: the newest that the library exports
  --speed X       recorded seconds per second; 0: as fast as possible; default 1
  --repeat N      repetitions, each with new communicators; 0: until stopped; default 1
  --hold SECONDS  lifetime of the processes after the last callback, to read the endpoint; default 0
  --clock CLOCK   real, or recorded: the plugin's monotonic clock shows the trace's own times, so
                  latencies are exactly the recorded ones at any speed; default real

Exit status: 0 done; 1 bad usage; 2 folder or file cannot be read; 3 no trace file in the folder;
4 a broken line or file; 5 the library does not load; 6 the library does not export the version;
7 a process crashed; 130 stopped by Ctrl-C.
)";

int Fail(int exit, const std::string& problem) {
  std::fprintf(stderr, "replay: %s\n", problem.c_str());
  return exit;
}

int Main(const std::vector<std::string_view>& words) {
  ProcessesOptions options;
  ReplayOptions& replay = options.replay;
  replay.library = "plugin/libnccl-profiler-pulse.so";
  bool is_help = false;
  int repeat = 1;
  std::string speed = "1";
  std::string hold = "0";
  std::string clock = "real";
  std::vector<std::string> folders;
  const std::string problem = ReadFlags("replay",
                                        {{"--help", &is_help},
                                         {"--library", &replay.library},
                                         {"--api", &replay.api},
                                         {"--speed", &speed},
                                         {"--repeat", &repeat},
                                         {"--hold", &hold},
                                         {"--clock", &clock, "real|recorded"}},
                                        words, &folders);
  if (!problem.empty()) return Fail(kReplayUsage, problem);
  if (is_help) {
    std::fputs(kUsage, stdout);
    return kReplayDone;
  }
  if (folders.size() != 1) return Fail(kReplayUsage, "takes one trace folder; --help says more");
  if (repeat < 0) return Fail(kReplayUsage, "--repeat is negative");
  replay.repeat = static_cast<uint64_t>(repeat);
  replay.recorded_clock = clock == "recorded";
  if (!absl::SimpleAtod(speed, &replay.speed) || !(replay.speed >= 0)) {
    return Fail(kReplayUsage, "--speed is not a number from 0");
  }
  if (!absl::SimpleAtod(hold, &options.hold_s) || !(options.hold_s >= 0 && options.hold_s <= 1e9)) {
    return Fail(kReplayUsage, "--hold is not between 0 and 1e9 seconds");
  }
  if (replay.api != 0 && (replay.api < kOldestApi || replay.api > kNewestApi)) {
    return Fail(kReplayUsage, "--api is no version from 1 to 7");
  }
  // The plugin prefers a CPU counter, which cannot be replaced. No other thread exists yet.
  if (replay.recorded_clock) {
    setenv("NCCL_PULSE_CLOCK", "monotonic", 1);
  }
  ReplayError error;
  auto files = ListTraceFiles(folders[0], &error);
  if (!files) return Fail(error.exit, error.text);
  options.files = *std::move(files);
  return ReplayProcesses(options);
}

}  // namespace
}  // namespace nccl_pulse

int main(int argc, char** argv) { return nccl_pulse::Main({argv + 1, argv + argc}); }
