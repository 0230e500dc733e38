#include "bench/replay/replay_child.h"

#include <algorithm>
#include <ctime>
#include <optional>
#include <string>

#include "bench/replay/child_messages.h"
#include "bench/replay/recorded_clock.h"
#include "bench/replay/reduction.h"
#include "bench/replay/stop_request.h"
#include "bench/replay/trace_file.h"

namespace nccl_pulse {
namespace {

int Fail(const ReplayError& error) {
  SendMessage(kErrorMessage, error.text);
  return error.exit;
}

void SleepMs(int64_t ms) {
  const timespec pause = {ms / 1000, (ms % 1000) * 1'000'000};
  nanosleep(&pause, nullptr);
}

}  // namespace

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
  shared.callbacks_in_trace = trace->events.size();
  shared.phase.store(Phase::kReady, std::memory_order_release);
  while (shared.start_ns.load(std::memory_order_acquire) == 0) {
    if (stop_requested.load(std::memory_order_relaxed)) return kReplayInterrupted;
    SleepMs(1);
  }

  ReplayOptions replay = options.replay;
  replay.logger = LogToParent;
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
