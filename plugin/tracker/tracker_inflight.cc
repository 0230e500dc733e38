// Tracker, the part that tells since when an operation is in flight where no events follow the
// launches: without a driver (RCCL among them), before API v5, or after the driver has failed.
//
// An operation is in flight since its enqueue
//   by the network   while a ProxyOp of its has started and not stopped. NCCL starts them within
//                    milliseconds of the enqueue, long before the GPU gets there, so one that waits
//                    behind others is seen too. One without network traffic is not seen at all.
//   by the kernel    (kernel timing) until all its channels have stopped; the untimed ones are not
//                    seen.
// Left out is what has no visible end:
//   - operations whose channels NCCL does not tell: CollNet, NVLS over several nodes, API v1 to v3.
//     NCCL starts ProxyOps for the first two that it never stops
//     (docs/nccl-profiler-api.md#network);
//   - all, until one operation of the communicator has ended before our eyes: copy-engine proxies
//     (NCCL_P2P_USE_CUDA_MEMCPY) never stop theirs either;
//   - an operation when one that was enqueued a second or more after it has ended: NCCL orders the
//     launches of a communicator, and operations a second apart are not of one launch. What is
//     missing then is an event.
#include <algorithm>

#include "plugin/tracker/tracker.h"

namespace nccl_pulse {
namespace {

constexpr uint64_t kLaterLaunchNs = 1000000000;

}  // namespace

void Tracker::FollowOperations(Communicator& communicator) {
  RecordWriter record = WriterOf(communicator);
  const CompletionSource source = record.completion_source();
  if (source == CompletionSource::kStream) return;  // better known there
  // Acquire: sees the communicator as AddCommunicator made it.
  if (communicator.context.load(std::memory_order_acquire) == 0 || timing_ == TimingMode::kOff) {
    record.ChangeCompletionSource(source, CompletionSource::kNone);  // nobody looks any longer
    return;
  }
  InflightOperations& inflight = communicator.inflight;
  const uint64_t end =
      communicator.launching->pending.next_operation.load(std::memory_order_acquire);
  const uint32_t record_generation = communicator.record_generation.load(std::memory_order_relaxed);
  if (inflight.record_generation != record_generation) {
    inflight = {record_generation, false, 0, 0, 0};
  }
  const bool by_kernel = timing_ == TimingMode::kKernel;
  const uint64_t begin = std::max(communicator.first_operation.load(std::memory_order_relaxed),
                                  end > kOperationSlots ? end - kOperationSlots : 0);
  const uint64_t ended_before_ns = inflight.newest_ended_ns;
  uint64_t oldest_ns = 0;
  uint64_t oldest_operation = 0;
  // Backwards, so that what has ended is known before what it proves about older ones.
  for (uint64_t number = end; number-- > begin;) {
    const OperationSlot& slot = communicator.operations[number % kOperationSlots];
    const uint64_t word = slot.word.load(std::memory_order_acquire);  // fields of this generation
    if ((word & SlotWord::kClaimed) != 0) continue;
    const OperationMeta meta = OperationMeta::Unpack(slot.meta.load(std::memory_order_relaxed));
    const uint64_t enqueue_ns = slot.enqueue_ns.load(std::memory_order_relaxed);
    // Acquire: the second look at the word comes after the fields were read.
    std::atomic_thread_fence(std::memory_order_acquire);
    const uint64_t again = slot.word.load(std::memory_order_relaxed);
    if (SlotWord::Generation(again) != SlotWord::Generation(word) || meta.channels == 0) continue;
    const bool expected = by_kernel ? !meta.untimed : SlotWord::Started(word) > 0;
    if (!expected) continue;
    const bool ended = by_kernel ? (word & SlotWord::kKernelDone) != 0
                                 : SlotWord::Started(word) == SlotWord::Stopped(word);
    if (ended) {
      inflight.ends_are_seen = true;
      inflight.newest_ended_ns = std::max(inflight.newest_ended_ns, enqueue_ns);
    } else if ((word & SlotWord::kOpen) != 0 &&
               inflight.newest_ended_ns < enqueue_ns + kLaterLaunchNs) {
      oldest_ns = enqueue_ns;
      oldest_operation = number;
    }
  }
  // The oldest gave its place to a newer one, and nothing has ended since: it still is.
  const bool lost_sight = inflight.oldest_ns != 0 && inflight.oldest_operation < begin;
  if (!lost_sight || oldest_ns == 0 || inflight.newest_ended_ns != ended_before_ns) {
    inflight.oldest_ns = oldest_ns;
    inflight.oldest_operation = oldest_operation;
  }
  if (!inflight.ends_are_seen) return;
  // Held, so that the record is not recycled meanwhile; of the communicator that was looked at.
  const LaneWriter lane(segment_, *communicator.record, record_generation, LaneRole::kBackground);
  if (!lane.ok()) return;  // the next round will
  record.StoreOldestOperation(inflight.oldest_ns);
  record.ChangeCompletionSource(source,
                                by_kernel ? CompletionSource::kKernel : CompletionSource::kProxy);
}

}  // namespace nccl_pulse
