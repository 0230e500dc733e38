#include "bench/replay/replay_child.h"

#include <strings.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <mutex>
#include <optional>
#include <set>

#include "bench/replay/recorded_clock.h"
#include "bench/replay/reduction.h"
#include "bench/replay/trace.h"

namespace nccl_pulse {
namespace {

static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler stores it");

void RequestStop(int /*signal*/) { stop_requested.store(true, std::memory_order_relaxed); }

int Fail(const ReplayError& error) {
  std::fprintf(stderr, "replay: %s\n", error.text.c_str());
  return error.exit;
}

// Prints each address once, so that the user knows where to connect.
void PrintAddress(const std::string& address) {
  // Never destroyed: the plugin's threads may outlive main.
  static auto& mutex = *new std::mutex;
  static auto& announced = *new std::set<std::string>;
  std::lock_guard<std::mutex> lock(mutex);
  if (!announced.insert(address).second) return;
  std::printf("%d: %s\n", getpid(), address.c_str());
  std::fflush(stdout);
}

// Stands in for NCCL's logger: prints warnings, and information if NCCL_DEBUG asks for it.
__attribute__((format(printf, 5, 6))) void Log(int level, unsigned long /*flags*/,
                                               const char* /*file*/, int /*line*/,
                                               const char* format, ...) {
  char text[1024];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof(text), format, arguments);
  va_end(arguments);
  const char* url = std::strstr(text, "http://");
  if (url != nullptr) PrintAddress(std::string(url, std::strcspn(url, " \t,;)\"'")));
  // No thread of this process changes the environment.
  const char* asked = std::getenv("NCCL_DEBUG");
  const bool is_information_shown =
      asked != nullptr && (strcasecmp(asked, "INFO") == 0 || strcasecmp(asked, "TRACE") == 0);
  if (is_information_shown || (level <= abi::kLogWarn && url == nullptr)) {
    std::fprintf(stderr, "%d: %s\n", getpid(), text);
  }
}

}  // namespace

std::atomic<bool> stop_requested{false};

void HandleStopSignals() {
  struct sigaction action = {};
  action.sa_handler = RequestStop;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

void SleepMs(int64_t ms) {
  const timespec pause = {ms / 1000, (ms % 1000) * 1'000'000};
  nanosleep(&pause, nullptr);
}

int RunChild(const std::string& file, const ProcessesOptions& options, SharedRun& shared) {
  ReplayError error;
  std::optional<std::string> text = ReadTraceText(file, &error);
  if (!text) return Fail(error);
  std::optional<Trace> trace = ParseTrace(file, *text, &error);
  if (!trace) return Fail(error);
  text->clear();
  text->shrink_to_fit();
  AddCaptureCallbacks(*trace);

  const auto by_time = [](const TraceEvent& a, const TraceEvent& b) { return a.t_ns < b.t_ns; };
  const auto [first, last] =
      std::minmax_element(trace->events.begin(), trace->events.end(), by_time);
  shared.first_ns = first->t_ns;
  shared.last_ns = last->t_ns;
  shared.phase.store(Phase::kReady, std::memory_order_release);
  while (shared.start_ns.load(std::memory_order_acquire) == 0) {
    if (stop_requested.load(std::memory_order_relaxed)) return kReplayInterrupted;
    SleepMs(1);
  }

  ReplayOptions replay = options.replay;
  replay.logger = Log;
  replay.first_ns = shared.run_first_ns;
  replay.start_ns = shared.start_ns.load(std::memory_order_relaxed);
  replay.period_ns = shared.period_ns;
  shared.phase.store(Phase::kReplaying, std::memory_order_relaxed);
  if (!Replay(*trace, replay, shared.progress, stop_requested, &error)) return Fail(error);
  shared.phase.store(Phase::kReplayed, std::memory_order_release);

  const int64_t end_ns = recorded_clock::RealNow() + static_cast<int64_t>(options.hold_s * 1e9);
  while (!stop_requested.load(std::memory_order_relaxed)) {
    const int64_t left_ns = end_ns - recorded_clock::RealNow();
    if (left_ns <= 0) return kReplayDone;
    SleepMs(std::clamp<int64_t>(left_ns / 1'000'000, 1, 50));
  }
  return kReplayInterrupted;
}

}  // namespace nccl_pulse
