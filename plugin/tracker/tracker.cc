// Tracker: finding what an event belongs to, and what all kinds of events share.
#include "plugin/tracker/tracker.h"

#include "metrics/shared_bytes.h"

namespace nccl_pulse {

Tracker::Tracker(Segment& segment, Clock& clock, TimingMode timing, const CudaDriver* driver,
                 int32_t pid, uint32_t process_tag, int timed_launches_per_second)
    : segment_(segment),
      clock_(clock),
      timing_(timing),
      pid_(pid),
      process_tag_(process_tag & ((1u << Ticket::kProcessBits) - 1)),
      operation_issuer_(Ticket::MakeIssuer(process_tag_, TicketKind::kOperation)),
      sampler_(timed_launches_per_second),
      stream_timer_(driver != nullptr && timing != TimingMode::kOff
                        ? std::make_unique<StreamTimer>(*driver)
                        : nullptr),
      launch_issuer_(stream_timer_ != nullptr
                         ? Ticket::MakeIssuer(process_tag_, TicketKind::kLaunch)
                         : UINT32_MAX),
      names_(segment.names()),
      send_name_(names_.Find("Send").id),
      receive_name_(names_.Find("Recv").id) {
  const bool times_streams = stream_timer_ != nullptr && timing_ == TimingMode::kAuto;
  segment_.header().sampling_exponent.store(times_streams ? sampler_.exponent() : -1,
                                            std::memory_order_relaxed);
  for (uint32_t i = 0; i < kMaxCommunicators; ++i) {
    slots_[i].index = i;
    slots_[i].first_ticket = Ticket::Pack(process_tag_, TicketKind::kOperation, 0, 0, 0, i);
    slots_[i].record = &segment_.record(i);
  }
}

void Tracker::IgnoreContext(uint64_t context) {
  Ignore(IsOwn(context, TicketKind::kContext) ? IgnoredReason::kStaleContext
                                              : IgnoredReason::kForeignContext);
}

Tracker::OperationState Tracker::ReadSlot(const OperationSlot& slot, uint64_t word) {
  // Relaxed: `word` was read with acquire, and the caller's swap of it proves afterwards that no
  // new operation had taken the slot while these were read.
  return {word, slot.last_stop.load(std::memory_order_relaxed),
          slot.enqueue_ns.load(std::memory_order_relaxed),
          slot.bytes.load(std::memory_order_relaxed),
          OperationMeta::Unpack(slot.meta.load(std::memory_order_relaxed))};
}

void Tracker::CountUntimed(LaneWriter& lane, uint8_t op, UntimedReason reason) {
  lane.Count(SeriesKey::Pack(SeriesKind::kUntimed, op, 0, static_cast<uint32_t>(reason), 0), 1, 0);
}

void Tracker::CountLatency(Communicator& communicator, LaneWriter& lane, LatencyKind kind,
                           const OperationMeta& meta, uint64_t bytes, uint64_t bus_bytes,
                           uint64_t duration_ns, uint64_t end_ns) {
  lane.Observe(SeriesKey::Pack(SeriesKind::kLatency, meta.op, meta.size_class,
                               static_cast<uint32_t>(kind), 0),
               duration_ns, bytes, bus_bytes);
  if (kind == LatencyKind::kCompletionProxy || kind == LatencyKind::kCompletionKernel) {
    lane.lane().last_completion_ns.store(end_ns, std::memory_order_relaxed);  // orders nothing
  }
  WriterOf(communicator)
      .AppendTimedCall(
          {meta.op, kind, meta.size_class, meta.call_number, bytes, duration_ns, end_ns});
}

void Tracker::StopAny(uint64_t bits) {
  if (bits == 0) return Ignore(IgnoredReason::kNullHandle);
  const TicketKind kind = Ticket::Kind(bits);
  if (Ticket::Process(bits) == process_tag_) {
    if (kind == TicketKind::kApiCall || kind == TicketKind::kGroup) return;
    if (kind == TicketKind::kProxyStep) return StopStep(bits);
    if (kind == TicketKind::kCapturedLaunch) return StopCapturedLaunch(bits);
  }
  const OperationRef ref = FindOperation(bits, kind);
  if (ref.communicator == nullptr) return Ignore(IgnoredReason::kForeignHandle);
  switch (kind) {
    case TicketKind::kOperation:
      return StopOperation(ref);
    case TicketKind::kProxyOp:
      return StopProxyOp(ref);
    case TicketKind::kKernelChannel:
      return StopKernelChannel(ref);
    default:
      return Ignore(IgnoredReason::kForeignHandle);
  }
}

void Tracker::RecordState(uint64_t bits, int state) {
  if (bits == 0) return Ignore(IgnoredReason::kNullHandle);
  if (Ticket::Process(bits) != process_tag_) return Ignore(IgnoredReason::kForeignHandle);
  constexpr int kLastKnownState = 31;  // KernelPhaseStop, API v7
  if (state < 0 || state > kLastKnownState) return Ignore(IgnoredReason::kUnknownState);
  // The known ones (a ProxyOp in progress, an API call at its group's end) say nothing that is
  // exported. That they came for something that is long gone is worth a count.
  if (Ticket::Kind(bits) != TicketKind::kProxyOp) return;
  const OperationRef ref = FindOperation(bits, TicketKind::kProxyOp);
  if (ref.communicator == nullptr) return Ignore(IgnoredReason::kForeignHandle);
  IsOpen(ref);
}

}  // namespace nccl_pulse
