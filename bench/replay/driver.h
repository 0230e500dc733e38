// Replays a trace into a plugin library: the part of NCCL that a profiler plugin sees.
//
// Order and threads. One thread per recorded thread; the recorded total order of callbacks is kept
// by handing a baton from thread to thread, so a replay gives the plugin the same sequence every
// time.
//
// Library. Loaded before the first init, unloaded after the last finalize, loaded again by the next
// repetition: NCCL counts its communicators and does the same. finalize is skipped for a NULL
// context.
//
// Mask. The one int that every init is given, which the plugin may rewrite at any time. What stands
// in it when an operation is called decides about all callbacks of that operation; those that it
// does not ask for are not made (reduction.h).
//
// Handles, as in NCCL 2.28 to 2.30 (src/plugin/profiler.cc):
//   - a parent is whatever the plugin returned for it, NULL included, stopped or not;
//   - *eHandle is not cleared before start. It holds what the same place held before: the thread's
//     last handle of that type for types whose storage NCCL reuses (API events, proxy, KernelCh),
//     NULL for those in freshly cleared memory (Group, Coll, P2p, KernelLaunch). Versions 1 to 3:
//     always NULL;
//   - stop and state are skipped when the handle is NULL, except for NetPlugin; states of a
//     ProxyStep also when its ProxyOp's handle is NULL; a ProxyOp's handle becomes NULL at its
//     stop.
//
// Process id. A ProxyOp recorded with the recorded process' own id gets this process'; a foreign
// one (PXN) keeps its number.
//
// Repetitions. Each initializes new communicators. Repetition r (0, 1, ...) has commId = recorded
// XOR r on every process of the trace, so that repetition 0 is what was recorded, others are new
// communicators, and ranks still agree.
//
// Thread: Replay blocks the caller; stop and progress may be used from any. Cost: a few
// microseconds per change of thread, else what the plugin costs.
#ifndef BENCH_REPLAY_DRIVER_H_
#define BENCH_REPLAY_DRIVER_H_

#include <atomic>
#include <cstdint>
#include <string>

#include "bench/replay/replay_error.h"
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

  // Several processes of one run are kept in step by giving all of them the same three values.
  int64_t first_ns = 0;   // recorded time that is played at start_ns
  int64_t start_ns = 0;   // CLOCK_MONOTONIC of today
  int64_t period_ns = 0;  // recorded time from one repetition to the next
};

// Written by the driver, read by anyone.
struct ReplayProgress {
  std::atomic<uint64_t> callbacks{0};  // recorded callbacks passed, made or not, over repetitions
  std::atomic<uint64_t> made{0};       // callbacks made
};

// Replays `trace`, which has been through AddCaptureCallbacks. Ends early when *stop becomes true;
// the communicators that are alive then are finalized. False, with the error of
// ProfilerLibrary::Load; a plugin's failing init is one log message, as in NCCL.
bool Replay(const Trace& trace, const ReplayOptions& options, ReplayProgress& progress,
            const std::atomic<bool>& stop, ReplayError* error);

}  // namespace nccl_pulse

#endif  // BENCH_REPLAY_DRIVER_H_
