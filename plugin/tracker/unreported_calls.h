// Counts the calls of a communicator whose launches NCCL does not report.
//
// A launch that NCCL reports covers all calls before it: NCCL orders the launches of a communicator
// (stream_timer.h). But some launches are not reported: those of Broadcast from 2.29.2 on (its
// tasks have no event mask; src/enqueue.cc, src/scheduler/allgatherv_sched.cc), and those of
// symmetric-memory kernels from 2.28.3 to 2.30.7 (docs/nccl-profiler-api.md#what-is-not-visible).
// Calls after the last reported launch are then work that cannot be seen: the communicator may look
// idle, and is not known to be.
//
//   calls since the last reported launch          PendingCalls::calls, which a launch sets to 0,
//                                                  and `left_calls_`: of groups before the last one
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

#include <algorithm>
#include <cstdint>

#include "metrics/atomic_cell.h"

namespace nccl_pulse {

class Clock;

// What a communicator has called since its last launch, as LaunchFollower knows it.
struct PendingCalls {
  uint32_t calls;
  uint32_t launch_number;  // tells one launch from the next
  uint64_t group;          // that the calls belong to, ThreadGroups::Current
};

// Of one communicator. Launching thread, but for the questions: those any thread.
class UnreportedCalls {
 public:
  // A new communicator's.
  void Reset() {
    left_calls_.store(0);
    calls_.store(0);
    group_.store(0);
  }

  // The group turns out to have several calls. `operations`: that NCCL has reported so far; nothing
  // of this group among them, that comes with its launches, after its calls.
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
  // Those of the last group without a launch of their own are followed all the same.
  void EndGroup() { calls_.store(0); }
  // The copy engines make one of the group's collectives.
  void AddCopy() { copies_.add(1); }
  // A group begins while calls of another one stand without a launch.
  void Leave(const PendingCalls& pending) {
    const uint32_t left = LeftAt(pending.launch_number) + static_cast<uint32_t>(Standing(pending));
    left_calls_.store(left);
    left_launch_.store(pending.launch_number);
  }

  // Of the pending calls those that stand without a launch.
  uint64_t Standing(const PendingCalls& pending) const {
    if (pending.calls < 2 || !IsLastGroup(pending)) return pending.calls;
    return Without(pending.calls, copies_.load());
  }
  // Of earlier groups, while that launch is the last.
  uint32_t LeftAt(uint32_t launch_number) const {
    return left_launch_.load() == launch_number ? left_calls_.load() : 0;
  }
  // Of the last group of several calls those whose launches were not reported with the others.
  uint64_t Hidden(uint64_t operations) const {
    const uint64_t copies = copies_.load();
    const uint64_t reported = operations - first_operation_.load() + copies;
    // Of the calls that are not collectives each has a launch that is reported, or needs none.
    return std::min(Without(calls_.load(), reported), Without(collectives_.load(), copies));
  }
  // All that stand, once `operations` were reported, as of the last launch or a call since.
  uint64_t Standing(const PendingCalls& pending, uint64_t operations) const {
    const bool is_launched = pending.calls == 0 && IsLastGroup(pending);
    return Standing(pending) + LeftAt(pending.launch_number) +
           (is_launched ? Hidden(operations) : 0);
  }
  // The calls of the pending calls' group, also once they are launched.
  uint32_t CallsOfGroup(const PendingCalls& pending) const {
    return IsLastGroup(pending) ? calls_.load() : 1;
  }
  // Whether anything of the last group of several calls was reported.
  bool HasReported(uint64_t operations) const { return operations != first_operation_.load(); }
  bool IsOfCollectives() const { return calls_.load() == collectives_.load(); }
  // Whether the pending calls' group is the last one of several calls.
  bool IsLastGroup(const PendingCalls& pending) const {
    return calls_.load() != 0 && group_.load() == pending.group;
  }

 private:
  static uint64_t Without(uint64_t calls, uint64_t others) {
    return calls - std::min(calls, others);
  }

  Relaxed<uint32_t> left_calls_;   // good while the launch's number is ...
  Relaxed<uint32_t> left_launch_;  // ... this one
  // The last group of several calls.
  Relaxed<uint64_t> group_;
  Relaxed<uint64_t> first_operation_;  // operations reported before its second call
  Relaxed<uint32_t> calls_;            // 0: there was none yet
  Relaxed<uint32_t> collectives_;      // among them
  Relaxed<uint32_t> copies_;           // of the collectives, made by copy engines
};

// How many calls stand, and since when: as of the look that found the last of the calls which stand
// now, so that a reader sees how long nothing has moved. A look may fall between a call and its
// launch, or see a launch late; the next one puts that right. Background thread.
class StandingCalls {
 public:
  // True when there is something to publish. `record_generation`: of the communicator that this is
  // about, another one begins anew. `unfinished`: no more of its last calls can stand, 0 once it has
  // ended. `in_group`: NCCL has not ended the last one (awaited_ends.h).
  // `is_launching`: a launch was begun and not counted yet. It stands, too, once it has lasted
  // kLongLaunchNs: NCCL's thread is held in the driver, by a full launch queue or
  // CUDA_LAUNCH_BLOCKING.
  bool Look(uint32_t record_generation, uint32_t unfinished, const UnreportedCalls& unreported,
            const PendingCalls& pending, uint64_t operations, bool in_group, bool is_launching,
            const Clock& clock);
  // It could not be published: the next look is to try again.
  void Retry() { calls_ = ~calls_ & INT32_MAX; }
  uint64_t calls() const { return calls_; }
  uint64_t since_ns() const { return since_ns_; }
  bool are_in_group() const { return are_in_group_ != 0; }

 private:
  static constexpr uint64_t kLongLaunchNs = 1000000000;

  uint32_t record_generation_;
  uint32_t launch_number_;
  uint64_t launching_since_ns_;  // when a look first saw the launch being made; 0: none is
  uint32_t hidden_;              // of a group whose other launches were reported
  uint32_t calls_ : 31;
  uint32_t are_in_group_ : 1;
  uint64_t since_ns_;
};

}  // namespace nccl_pulse

#endif  // PLUGIN_TRACKER_UNREPORTED_CALLS_H_
