// Calls of a communicator whose launches NCCL does not report.
//
// A launch that NCCL reports covers all calls before it: NCCL orders the launches of a communicator
// (stream_timer.h). But not all launches are reported: not those of Broadcast from 2.29.2 on (its
// tasks have no event mask; src/enqueue.cc, src/scheduler/allgatherv_sched.cc) and not those of
// symmetric-memory kernels from 2.28.3 to 2.30.7 (docs/nccl-profiler-api.md#what-is-not-visible).
// What then stands between the last reported launch and now is work that cannot be seen: the
// communicator may look idle and is not known to be.
//
//   calls since the last reported launch          PendingLaunch::calls, which a launch sets to 0,
//                                                  and `left_calls`: of groups before the last one
//   calls of a group of which other launches       calls - operations reported, for the last group
//   were reported                                  of several calls; at most its collectives
//
// Only eager calls count: those of a graph are launched with it. A call that makes no launch at all
// (send to and receive from oneself, in place, alone in its group) counts until the next launch:
// the events do not tell it from one whose launch is hidden. Of the calls of a group with hidden
// launches those are taken to be hidden of which there was no Coll, though their work may have
// been part of a launch that was reported: also unknown rather than wrong.
//
// Written where a second call of a group comes, or one after a group without a launch: off the path
// of a call that is alone and gets its launch. Read by the background thread, which publishes the
// number and since when it has stood. Without a stream timer (no driver, timing off) nobody
// counts: what is in flight is then not known anyway.
#ifndef PLUGIN_TRACKER_UNREPORTED_CALLS_H_
#define PLUGIN_TRACKER_UNREPORTED_CALLS_H_

#include <atomic>
#include <cstdint>

namespace nccl_pulse {

// Writers and orderings: as PendingLaunch.
struct alignas(64) UnreportedCalls {
  std::atomic<uint32_t> left_calls;   // good while PendingLaunch::launch_number is ...
  std::atomic<uint32_t> left_launch;  // ... this one
  // The last group of several calls.
  std::atomic<uint64_t> group;            // PendingLaunch::group
  std::atomic<uint64_t> first_operation;  // PendingLaunch::next_operation at its second call
  std::atomic<uint32_t> calls;            // 0: there was none yet
  std::atomic<uint32_t> collectives;      // among them
  std::atomic<uint32_t> copies;           // of the collectives, made by copy engines
};

// What the background thread last saw of it.
struct StandingCalls {
  uint32_t record_generation;  // of the communicator that the rest is about
  uint32_t launch_number;
  uint32_t hidden;  // of a group whose other launches were reported
  uint64_t calls;   // published
  uint64_t since_ns;
};

}  // namespace nccl_pulse

#endif  // PLUGIN_TRACKER_UNREPORTED_CALLS_H_
