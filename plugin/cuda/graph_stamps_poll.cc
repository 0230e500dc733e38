// The functions of GraphStamps with which the background thread reads the stamps.
#include <algorithm>

#include "plugin/cuda/graph_stamps.h"

namespace nccl_pulse {
namespace {

// CUDA reports the end of a graph when its last replay has ended. After this delay, all of its
// counts have arrived.
constexpr uint64_t kDestroyedNs = 100000000;

}  // namespace

GraphStamps::Captures GraphStamps::captures() const {
  // Relaxed: the counts are independent.
  return {seen_.load(std::memory_order_relaxed), followed_.load(std::memory_order_relaxed),
          no_room_.load(std::memory_order_relaxed), incomplete_.load(std::memory_order_relaxed),
          refused_.load(std::memory_order_relaxed)};
}

GraphStamps::Progress GraphStamps::Look(Record& record, uint64_t now_ns) {
  const uint32_t stamps = record.stamps.load(std::memory_order_acquire);  // sees them
  Progress progress{stamps, 0, 0, false, 0, 0};
  // Reads the last stamp first, so that a replay that moves meanwhile looks in flight rather than
  // ahead of itself.
  for (uint32_t i = stamps; i-- > 0;) {
    Record::Stamp& stamp = record.stamp[i];
    const uint64_t passages = record.context->Read(stamp.slot).count - stamp.base;
    // A count may be lower than before: see stamp_code.h.
    if (passages > stamp.seen && static_cast<int64_t>(passages) > 0) {
      stamp.seen = passages;
      progress.moved = true;
    }
  }
  if (progress.moved) record.moved_ns = now_ns;
  if (stamps == 0) return progress;
  const uint64_t last = record.stamp[stamps - 1].seen;
  progress.replays = record.stamp[0].seen;
  progress.in_flight = progress.replays > last ? progress.replays - last : 0;
  if (progress.replays == 0) return progress;
  while (progress.passed < stamps && record.stamp[progress.passed].seen >= progress.replays) {
    ++progress.passed;
  }
  record.is_passed_due |= progress.moved;
  if (!record.is_passed_due) return progress;
  progress.gpu_ns = record.context->Read(record.stamp[progress.passed - 1].slot).gpu_ns;
  record.is_passed_due = progress.gpu_ns == 0;
  return progress;
}

// Relaxed throughout: published by the kind, the communicator, or the stamps.
GraphStamps::Replayed GraphStamps::Describe(Record& record, const Progress& progress,
                                            const CapturedCalls& calls, uint32_t kind,
                                            bool is_first) const {
  const uint64_t replays = progress.replays - calls.counted;
  Replayed replayed{};
  replayed.communicator = CapturedCalls::Communicator(kind);
  replayed.owner = calls.owner.load(std::memory_order_relaxed);
  replayed.op = CapturedCalls::Op(kind);
  replayed.size_class = CapturedCalls::SizeClass(kind);
  replayed.is_first_of_communicator = is_first;
  replayed.replays = replays;
  replayed.calls = replays * calls.calls.load(std::memory_order_relaxed);
  replayed.bytes = replays * calls.bytes.load(std::memory_order_relaxed);
  replayed.in_flight = progress.in_flight;
  replayed.moved_ns = record.moved_ns;
  if (!is_first) return replayed;
  const CommunicatorCaptures& captures = tables_->of_communicators[replayed.communicator];
  // Acquire: sees its numbers, not those of the owner before.
  if (captures.owner.load(std::memory_order_acquire) == replayed.owner) {
    replayed.captures = captures.seen.load(std::memory_order_relaxed);
    replayed.followed = captures.followed.load(std::memory_order_relaxed);
  }
  if (progress.gpu_ns == 0) return replayed;
  for (const CaptureMember& member : record.members) {
    if (!member.Is(replayed.communicator, replayed.owner)) continue;
    Passed& last = replayed.last;
    last.gpu_ns = progress.gpu_ns;
    last.graph = member.number.load(std::memory_order_relaxed);
    last.passed = progress.passed;
    last.stamps = progress.stamps;
    last.has_head = record.has_head;
    for (const CapturedCalls& each : record.calls) {
      const uint32_t other = each.kind.load(std::memory_order_acquire);  // sees its numbers
      if (other == 0) break;
      if (CapturedCalls::Communicator(other) == replayed.communicator) {
        last.calls += each.calls.load(std::memory_order_relaxed);
      }
    }
    last.calls_before = member.before[last.passed - 1];
    last.calls_until = last.passed < last.stamps ? member.before[last.passed] : last.calls;
  }
  return replayed;
}

uint64_t GraphStamps::NewDuration(Record& record, uint32_t number) {
  Record::Stamp& end = record.stamp[number];
  const Record::Stamp& begin = record.stamp[number - 1];
  if (end.launch.kind == 0) return 0;
  const StampContext::Passages last = record.context->Read(end.slot);
  const StampContext::Passages first = record.context->Read(begin.slot);
  // Both stamps must be of the same passage, with no newer passage while they were read. Otherwise
  // the next replay runs between the two stamps and has overwritten the first.
  const uint64_t passages = last.count - end.base;
  if (last.gpu_ns == 0 || first.gpu_ns == 0 || first.count - begin.base != passages ||
      passages == end.timed || record.context->Read(end.slot).count != last.count ||
      last.gpu_ns <= first.gpu_ns) {
    return 0;
  }
  end.timed = passages;
  return last.gpu_ns - first.gpu_ns;
}

GraphStamps::Timed GraphStamps::DescribeTimed(const Record& record, uint32_t number,
                                              uint64_t duration_ns) {
  const Record::Stamp& end = record.stamp[number];
  Timed timed{end.launch, duration_ns, end.timed, 0, (number - 1) / 2};
  for (const CaptureMember& member : record.members) {
    if (member.Is(CapturedCalls::Communicator(end.launch.kind), end.launch.owner)) {
      timed.graph = member.number.load(std::memory_order_relaxed);  // published with the member
    }
  }
  return timed;
}

bool GraphStamps::IsOver(Record& record, uint64_t now_ns) {
  // Acquire: CUDA's thread no longer uses the record.
  if (!record.is_destroyed.load(std::memory_order_acquire)) return false;
  if (record.destroyed_ns == 0) record.destroyed_ns = std::max<uint64_t>(now_ns, 1);
  return now_ns >= record.destroyed_ns + kDestroyedNs;
}

void GraphStamps::Free(Record& record) {
  const uint32_t stamps = record.stamps.load(std::memory_order_relaxed);  // seen by Look
  for (uint32_t i = 0; i < stamps; ++i) record.context->GiveBack(record.stamp[i].slot);
  record.state.store(Record::kFree, std::memory_order_release);  // hands it to the next capture
}

}  // namespace nccl_pulse
