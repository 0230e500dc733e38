// UnreportedCalls counts a communicator's calls whose launches NCCL does not report.
//
// A launch that NCCL reports covers all calls before it: NCCL orders the launches of a communicator
// (stream_timer.h). Some launches are not reported: Broadcast from 2.29.2 on (its tasks have no
// event mask; src/enqueue.cc, src/scheduler/allgatherv_sched.cc), and symmetric-memory kernels from
// 2.28.3 to 2.30.7 (docs/nccl-profiler-api.md#what-is-not-visible). Calls after the last reported
// launch are then work that no event shows: the communicator must not be called idle.
//
// The count is the sum of:
//   calls of the last group without a launch       PendingCalls::calls; a launch sets it to 0
//   calls of earlier groups since the last launch  `left_calls_`
//   hidden (unreported) launches of a group of     Hidden(): its calls - its reported operations;
//   several calls, the last such group             at most the number of its collectives
//
// Captured calls do not count: they are launched with their graph. A call that needs no launch (an
// in-place send to and receive from oneself, alone in its group) counts until the next launch,
// because events do not distinguish it from a call with a hidden launch. In a group with hidden
// launches, every call without a reported Coll counts, although a reported launch may have carried
// its work: the state is then "unknown", which is better than wrong.
//
// Cost: the launching thread writes here only at the second and later calls of a group, and at a
// call after a group without a launch. A single call with a launch costs nothing. The background
// thread reads the number and publishes it with the time of its last change. Without a stream timer
// (no driver, timing off) nothing is counted, because work in flight is not known then.
#ifndef PLUGIN_TRACKER_UNREPORTED_CALLS_H_
#define PLUGIN_TRACKER_UNREPORTED_CALLS_H_

#include <algorithm>
#include <cstdint>

#include "metrics/atomic_cell.h"

namespace nccl_pulse {

class Clock;

// A communicator's calls since its last launch, from LaunchFollower.
struct PendingCalls {
  uint32_t calls;
  uint32_t launch_number;  // identifies the last launch
  uint64_t group;          // of the calls: ThreadGroups::Current
};

// One per communicator. The launching thread writes; const methods may run on any thread.
class UnreportedCalls {
 public:
  // Starts anew for a new communicator.
  void Reset() {
    left_calls_.store(0);
    calls_.store(0);
    group_.store(0);
  }

  // Call at the second call of a group. `operations`: number that NCCL has reported so far. None
  // belongs to this group: NCCL reports operations with the launches, after all calls of the group.
  void BeginGroup(uint64_t group, bool first_is_collective, uint64_t operations) {
    group_.store(group);
    first_operation_.store(operations);
    calls_.store(1);
    collectives_.store(first_is_collective ? 1 : 0);
    copies_.store(0);
  }
  void AddCall(bool is_collective) {
    calls_.add(1);
    if (is_collective) collectives_.add(1);
  }
  // Call if the end of the last group replaced its hidden launches (unreported_launch.cc), so they
  // no longer count.
  void EndGroup() { calls_.store(0); }
  // Counts a collective of the group that copy engines run.
  void AddCopy() { copies_.add(1); }
  // Call when a group begins while calls of another group are pending without a launch.
  void Leave(const PendingCalls& pending) {
    const uint32_t left =
        LeftAt(pending.launch_number) + static_cast<uint32_t>(Unlaunched(pending));
    left_calls_.store(left);
    left_launch_.store(pending.launch_number);
  }

  // Returns the number of pending calls without a launch.
  uint64_t Unlaunched(const PendingCalls& pending) const {
    if (pending.calls < 2 || !IsLastGroup(pending)) return pending.calls;
    return Without(pending.calls, copies_.load());
  }
  // Returns the number of calls of earlier groups without a launch; 0 if launch `launch_number`
  // came after them.
  uint32_t LeftAt(uint32_t launch_number) const {
    return left_launch_.load() == launch_number ? left_calls_.load() : 0;
  }
  // Returns the number of hidden launches of the last group of several calls.
  uint64_t Hidden(uint64_t operations) const {
    const uint64_t copies = copies_.load();
    const uint64_t reported = operations - first_operation_.load() + copies;
    // Calls other than collectives have a reported launch, or need none.
    return std::min(Without(calls_.load(), reported), Without(collectives_.load(), copies));
  }
  // Returns the number of all calls without a reported launch, after `operations` reports.
  uint64_t Unlaunched(const PendingCalls& pending, uint64_t operations) const {
    const bool is_launched = pending.calls == 0 && IsLastGroup(pending);
    return Unlaunched(pending) + LeftAt(pending.launch_number) +
           (is_launched ? Hidden(operations) : 0);
  }
  // Returns the number of calls of the pending calls' group, launched or not.
  uint32_t CallsOfGroup(const PendingCalls& pending) const {
    return IsLastGroup(pending) ? calls_.load() : 1;
  }
  // True if NCCL has reported an operation of the last group of several calls.
  bool HasReported(uint64_t operations) const { return operations != first_operation_.load(); }
  bool IsOfCollectives() const { return calls_.load() == collectives_.load(); }
  // True if the pending calls' group is the last group of several calls.
  bool IsLastGroup(const PendingCalls& pending) const {
    return calls_.load() != 0 && group_.load() == pending.group;
  }

 private:
  static uint64_t Without(uint64_t calls, uint64_t others) {
    return calls - std::min(calls, others);
  }

  // Calls of earlier groups without a launch; valid while `left_launch_` numbers the last launch.
  Relaxed<uint32_t> left_calls_;
  Relaxed<uint32_t> left_launch_;
  // The last group of several calls.
  Relaxed<uint64_t> group_;
  Relaxed<uint64_t> first_operation_;  // operations reported before its second call
  Relaxed<uint32_t> calls_;            // 0: no such group yet
  Relaxed<uint32_t> collectives_;      // among `calls_`
  Relaxed<uint32_t> copies_;           // among `collectives_`, run by copy engines
};

// UnlaunchedCalls holds the number of calls without a reported launch, and the time of the poll
// that found the last of them. A poll may fall between a call and its launch, or see a launch late;
// the next poll corrects that. Background thread only.
class UnlaunchedCalls {
 public:
  // Polls. Returns true if there is something to publish.
  //   record_generation  of the communicator; if it has changed, earlier polls are forgotten
  //   unfinished         upper limit of calls without a launch; 0 once the communicator has ended
  //   in_group           NCCL has not ended the last group (awaited_ends.h)
  //   is_launching       a launch was begun and is not counted yet. After kLongLaunchNs it counts
  //                      as a call without a launch: the driver holds NCCL's thread (a full launch
  //                      queue, CUDA_LAUNCH_BLOCKING)
  bool Look(uint32_t record_generation, uint32_t unfinished, const UnreportedCalls& unreported,
            const PendingCalls& pending, uint64_t operations, bool in_group, bool is_launching,
            const Clock& clock);
  // Makes the next poll publish again, because publishing failed.
  void Retry() { calls_ = ~calls_ & INT32_MAX; }
  uint64_t calls() const { return calls_; }
  uint64_t since_ns() const { return since_ns_; }
  bool are_in_group() const { return are_in_group_ != 0; }

 private:
  static constexpr uint64_t kLongLaunchNs = 1000000000;

  uint32_t record_generation_;
  uint32_t launch_number_;
  uint64_t launching_since_ns_;  // first poll that saw the launch begun; 0: no launch is begun
  uint32_t hidden_;              // UnreportedCalls::Hidden at the last poll
  uint32_t calls_ : 31;
  uint32_t are_in_group_ : 1;
  uint64_t since_ns_;
};

}  // namespace nccl_pulse

#endif  // PLUGIN_TRACKER_UNREPORTED_CALLS_H_
