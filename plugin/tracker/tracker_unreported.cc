// Tracker, the part of calls that do not stand alone before their launch: several of a group, those
// of a graph, and those without a launch that NCCL reported (unreported_calls.h).
#include <algorithm>

#include "plugin/tracker/bus_bytes.h"
#include "plugin/tracker/tracker.h"

namespace nccl_pulse {

namespace {

// A cell that has one writer at a time. Relaxed: see PendingLaunch.
template <typename Number>
void Add(std::atomic<Number>& cell, Number amount) {
  cell.store(cell.load(std::memory_order_relaxed) + amount, std::memory_order_relaxed);
}

uint64_t Without(uint64_t calls, uint64_t others) { return calls - std::min(calls, others); }

}  // namespace

void Tracker::NoteUnlaunchedCalls(Communicator& communicator, NameId op, uint64_t bytes,
                                  uint64_t group) {
  // Relaxed: see PendingLaunch.
  PendingLaunch& pending = communicator.launching->pending;
  // Calls of an earlier group that were never launched are not this group's.
  if (group != 0 && pending.group.load(std::memory_order_relaxed) != group) {
    LeaveCalls(*communicator.launching);
    NoteFirstCall(pending, bytes, group);
    return;
  }
  NoteFurtherCall(communicator, op, bytes);
}

void Tracker::NoteCapturedCall(Communicator& communicator, const CapturedCall& call) {
  communicator.record->captured.store(1, std::memory_order_relaxed);  // a flag
  ForgetCapturedCall(*communicator.launching);
  if (graphs_ != nullptr) NoteCallOfGraph(communicator, call);
}

void Tracker::NoteFurtherCall(Communicator& communicator, NameId op, uint64_t bytes) {
  // Relaxed: see PendingLaunch.
  PendingLaunch& pending = communicator.launching->pending;
  UnreportedCalls& unreported = communicator.launching->unreported;
  if (pending.calls.load(std::memory_order_relaxed) == 1) NoteSecondCall(*communicator.launching);
  Add(unreported.calls, 1u);
  if (IsCollective(op)) Add(unreported.collectives, 1u);
  pending.bus_bytes.store(
      PendingBusBytes(communicator) +
          BusBytes(op, bytes, communicator.nranks.load(std::memory_order_relaxed)),
      std::memory_order_relaxed);
  Add(pending.bytes, bytes);
  Add(pending.calls, 1u);
}

bool Tracker::IsCollective(NameId op) const { return op != send_name_ && op != receive_name_; }

void Tracker::NoteSecondCall(LaunchState& launching) const {
  // Relaxed throughout: see PendingLaunch.
  const PendingLaunch& pending = launching.pending;
  UnreportedCalls& unreported = launching.unreported;
  const auto first = OperationMeta::Unpack(pending.meta.load(std::memory_order_relaxed));
  unreported.group.store(pending.group.load(std::memory_order_relaxed), std::memory_order_relaxed);
  // Nothing of this group has been reported yet: that comes with its launches, after its calls.
  unreported.first_operation.store(pending.next_operation.load(std::memory_order_relaxed),
                                   std::memory_order_relaxed);
  unreported.calls.store(1, std::memory_order_relaxed);
  unreported.collectives.store(IsCollective(first.op) ? 1 : 0, std::memory_order_relaxed);
  unreported.copies.store(0, std::memory_order_relaxed);
}

void Tracker::LeaveCalls(LaunchState& launching) {
  // Relaxed throughout: see PendingLaunch.
  const PendingLaunch& pending = launching.pending;
  UnreportedCalls& unreported = launching.unreported;
  const uint32_t launch = pending.launch_number.load(std::memory_order_relaxed);
  const bool same = unreported.left_launch.load(std::memory_order_relaxed) == launch;
  const uint32_t left = same ? unreported.left_calls.load(std::memory_order_relaxed) : 0;
  unreported.left_calls.store(left + static_cast<uint32_t>(PendingCalls(launching)),
                              std::memory_order_relaxed);
  unreported.left_launch.store(launch, std::memory_order_relaxed);
}

void Tracker::ForgetCapturedCall(LaunchState& launching) {
  // Relaxed: see PendingLaunch. A group is captured as a whole: none of its calls stands here.
  launching.pending.calls.store(0, std::memory_order_relaxed);
}

void Tracker::CoverCalls(LaunchState& launching) {
  // Relaxed: see PendingLaunch. The number: as for a launch that is followed, see UnreportedCalls.
  PendingLaunch& pending = launching.pending;
  pending.calls.store(0, std::memory_order_relaxed);
  pending.launch_number.store(pending.launch_number.load(std::memory_order_relaxed) + 1,
                              std::memory_order_relaxed);
}

void Tracker::ResetUnreportedCalls(LaunchState& launching) {
  // Relaxed: published by the communicator's context.
  UnreportedCalls& unreported = launching.unreported;
  unreported.left_calls.store(0, std::memory_order_relaxed);
  unreported.calls.store(0, std::memory_order_relaxed);
  unreported.group.store(0, std::memory_order_relaxed);
}

bool Tracker::IsLastGroup(const LaunchState& launching) {
  // Relaxed: see PendingLaunch.
  return launching.unreported.calls.load(std::memory_order_relaxed) != 0 &&
         launching.unreported.group.load(std::memory_order_relaxed) ==
             launching.pending.group.load(std::memory_order_relaxed);
}

uint64_t Tracker::PendingCalls(const LaunchState& launching) {
  // Relaxed: see PendingLaunch.
  const uint64_t calls = launching.pending.calls.load(std::memory_order_relaxed);
  if (calls < 2 || !IsLastGroup(launching)) return calls;
  return Without(calls, launching.unreported.copies.load(std::memory_order_relaxed));
}

uint64_t Tracker::HiddenCalls(const LaunchState& launching) {
  // Relaxed throughout: see PendingLaunch.
  const UnreportedCalls& unreported = launching.unreported;
  const uint64_t copies = unreported.copies.load(std::memory_order_relaxed);
  const uint64_t reported = launching.pending.next_operation.load(std::memory_order_relaxed) -
                            unreported.first_operation.load(std::memory_order_relaxed) + copies;
  // Of the calls that are not collectives each has a launch that is reported, or needs none.
  return std::min(Without(unreported.calls.load(std::memory_order_relaxed), reported),
                  Without(unreported.collectives.load(std::memory_order_relaxed), copies));
}

// Since when: as of the look that found the last of the calls which stand now, so that a reader
// sees how long nothing has moved. A look may fall between a call and its launch, or see a launch
// late; the next one puts that right.
void Tracker::PublishUnreportedCalls(Communicator& communicator) {
  if (communicator.launching == nullptr) return;
  // Acquire: sees the communicator as AddCommunicator made it.
  const bool lives = communicator.context.load(std::memory_order_acquire) != 0;
  const LaunchState& launching = *communicator.launching;
  const PendingLaunch& pending = launching.pending;
  const uint32_t record_generation = communicator.record_generation.load(std::memory_order_relaxed);
  StandingCalls& standing = communicator.standing;
  if (standing.record_generation != record_generation) standing = {record_generation, 0, 0, 0, 0};

  // Relaxed throughout: see PendingLaunch.
  const uint32_t launch = pending.launch_number.load(std::memory_order_relaxed);
  const bool launched = launch != standing.launch_number;
  uint64_t calls = PendingCalls(launching);
  if (launching.unreported.left_launch.load(std::memory_order_relaxed) == launch) {
    calls += launching.unreported.left_calls.load(std::memory_order_relaxed);
  }
  const bool is_launched_group =
      pending.calls.load(std::memory_order_relaxed) == 0 && IsLastGroup(launching);
  const uint64_t hidden = is_launched_group ? HiddenCalls(launching)
                          : launched        ? 0
                                            : standing.hidden;
  calls += hidden;
  if (!lives) calls = 0;
  // Its own look at the clock: the round may have been long in the driver before.
  const bool are_new = calls != standing.calls || launched;
  const uint64_t since_ns = calls == 0 ? 0 : are_new ? clock_.NowNs() : standing.since_ns;
  const bool is_new = calls != standing.calls || since_ns != standing.since_ns;
  standing = {record_generation, launch, static_cast<uint32_t>(hidden), calls, since_ns};
  if (!is_new) return;
  // Held, so that the record is not recycled meanwhile.
  LaneWriter lane(segment_, *communicator.record, record_generation, LaneRole::kBackground);
  if (lane.ok()) {
    WriterOf(communicator).StoreUnreportedCalls(calls, since_ns);
  } else {
    standing.calls = ~calls;  // the next look tries again
  }
}

}  // namespace nccl_pulse
