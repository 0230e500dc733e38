// Replay replays a trace into a plugin library: the part of NCCL that a profiler plugin sees.
//
// Order and threads. There is one thread per recorded thread. The recorded total order of callbacks
// is kept by handing a baton from thread to thread, so every replay gives the plugin the same
// sequence.
//
// Library. Loaded before the first init, unloaded after the last finalize, and loaded again by the
// next repetition: NCCL counts its communicators and does the same. finalize is skipped for a NULL
// context.
//
// Mask. All inits get the address of one int, which the plugin may rewrite at any time. An
// operation's callbacks are filtered by the mask's value at its call (reduction.h).
//
// Handles, as in NCCL 2.28 to 2.30 (src/plugin/profiler.cc):
//   - parentObj is the handle that the plugin returned for the parent, even if it is NULL or the
//     parent was stopped;
//   - *eHandle is not cleared before start. It holds the previous value of its storage: the
//     thread's last handle of that type if NCCL reuses the storage (API events, proxy, KernelCh),
//     NULL for types in freshly cleared memory (Group, Coll, P2p, KernelLaunch). Versions 1 to 3:
//     always NULL;
//   - stop and state are skipped if the handle is NULL, except for NetPlugin. States of a ProxyStep
//     are also skipped if its ProxyOp's handle is NULL, which it becomes at its stop.
//
// Process id. If a ProxyOp was recorded with its own process' id, the replay passes this process'
// id instead. The id of another process (PXN) is kept.
//
// Repetitions. Each initializes new communicators. In repetition r (0, 1, ...) a communicator's ID
// is the recorded ID XOR r, in every process of the trace. So repetition 0 equals the recording,
// later repetitions have new IDs, and the ranks agree on them.
//
// Thread: Replay blocks the caller; stop and progress: any thread. Cost: a few microseconds per
// change of thread, else the plugin's cost.
#ifndef BENCH_REPLAY_DRIVER_H_
#define BENCH_REPLAY_DRIVER_H_

#include <atomic>
#include <cstdint>
#include <string>

#include "bench/replay/trace.h"
#include "plugin/abi/common.h"

namespace nccl_pulse {

struct ReplayOptions {
  std::string library;
  int api = 0;          // 1 to 7; 0: the newest that the library exports
  double speed = 1;     // recorded seconds per second; 0: as fast as possible
  uint64_t repeat = 1;  // 0: until stopped
  // The plugin's CLOCK_MONOTONIC shows recorded time (recorded_clock.h).
  bool recorded_clock = false;
  abi::DebugLogger logger = nullptr;

  // Several processes of one run stay in step if all get the same three values.
  int64_t first_ns = 0;   // recorded time that is played at start_ns
  int64_t start_ns = 0;   // real CLOCK_MONOTONIC
  int64_t period_ns = 0;  // recorded time from one repetition to the next
};

// Written by the driver; any thread may read.
struct ReplayProgress {
  std::atomic<uint64_t> callbacks{0};  // recorded callbacks passed, made or filtered out
  std::atomic<uint64_t> made{0};       // callbacks made
};

// Replays `trace`, prepared by AddCaptureCallbacks. If *stop becomes true, ends early and finalizes
// live communicators. Returns false only with an error of ProfilerLibrary::Load. A plugin's failing
// init is one log message, as in NCCL.
bool Replay(const Trace& trace, const ReplayOptions& options, ReplayProgress& progress,
            const std::atomic<bool>& stop, ReplayError* error);

}  // namespace nccl_pulse

#endif  // BENCH_REPLAY_DRIVER_H_
