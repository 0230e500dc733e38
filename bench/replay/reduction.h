// Reduction decides which recorded callbacks NCCL would have made for another event mask and API
// version.
//
// Traces are recorded with all event types enabled and API version 5. A plugin that requests fewer,
// or exports an older version, gets fewer calls:
//
//   mask       an event comes if its own bit, or that of an event below it, is set: NeededBits().
//   version    the adapters between NCCL's core and an older plugin drop event types and states
//              that the version does not know.
//   graphs     NCCL makes Group, Coll and P2p callbacks at each replay of a captured operation only
//              if the launch carries proxy operations: network traffic, or KernelCh switched on.
//              Without either they come once, at capture, between the kernel launch and the end of
//              the group. Captured operations then do not advance the sequence number.
//
// The last rule changes order and content, so AddCaptureCallbacks() prepares a trace for it once:
// callbacks of replays are marked kOnlyWithKernelCh, and callbacks of the capture are inserted
// (taken from the first replay; a graph never replayed has none) as kOnlyWithoutKernelCh.
//
// Sources: NCCL 2.30.7 src/plugin/profiler.cc (masks), src/plugin/profiler/profiler_v*.cc
// (adapters), src/enqueue.cc hostStreamPlanTask (graphs). Measured with 2.28.9: 840 calls, ten of
// them captured and replayed, gave 840 Coll events with KernelCh off and over 7,200 with it on.
//
// Thread: Delivered and NeededBits any; AddCaptureCallbacks owns its trace. Cost: Delivered a few
// ns.
#ifndef BENCH_REPLAY_REDUCTION_H_
#define BENCH_REPLAY_REDUCTION_H_

#include <cstdint>

#include "bench/replay/trace.h"

namespace nccl_pulse {

// Returns a set of mask bits. Any one of them enables the callbacks of `type` (one abi::kEvent*
// bit).
uint32_t NeededBits(uint32_t type);

// True if a plugin of API version `version` that wrote `mask` gets this callback, by the rules
// above. (NULL handles suppress more callbacks, see driver.h.)
bool Delivered(const TraceEvent& event, uint32_t mask, int version);

void AddCaptureCallbacks(Trace& trace);

}  // namespace nccl_pulse

#endif  // BENCH_REPLAY_REDUCTION_H_
