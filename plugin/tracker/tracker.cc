// Tracker, the part for all kinds of events, and the life of a communicator.
#include "plugin/tracker/tracker.h"

#include "plugin/tracker/counting.h"
#include "plugin/tracker/settling.h"

namespace nccl_pulse {

Tracker::Tracker(Segment& segment, Clock& clock, TimingMode timing, const CudaDriver* driver,
                 int32_t pid, uint32_t process_tag, int timed_launches_per_second)
    : instruments_(segment, clock, timing, driver, pid, process_tag, timed_launches_per_second),
      communicators_(instruments_),
      steps_(instruments_, communicators_),
      graphs_(instruments_),
      work_(instruments_),
      chunks_(instruments_),
      network_seen_(false),
      has_sight_(true) {}

uint64_t Tracker::AddCommunicator(const CommunicatorIdentity& identity) {
  const uint64_t context = communicators_.Add(identity, has_sight());
  if (context != 0 && work_.is_on()) {
    work_.Attach(communicators_.At(context), identity.context_at,
                 {identity.rank, identity.nranks, identity.nnodes});
  }
  return context;
}

void Tracker::FinishCommunicator(uint64_t context) {
  Communicator* communicator = communicators_.Close(context);
  if (communicator == nullptr) return;
  chunks_.KeepToSettle();
  SettleAll(instruments_, *communicator);
  communicators_.Finish(*communicator);
}

void Tracker::StopAny(uint64_t bits) {
  if (bits == 0) return Ignore(IgnoredReason::kNullHandle);
  const TicketKind kind = Ticket::Kind(bits);
  if (Ticket::Process(bits) == instruments_.process_tag) {
    if (kind == TicketKind::kApiCall) return;
    if (kind == TicketKind::kGroup) return StopGroup(bits);
    if (kind == TicketKind::kProxyStep) return steps_.Stop(bits);
    if (kind == TicketKind::kCapturedLaunch) {
      return graphs_.StopLaunch(communicators_.At(bits), bits);
    }
  }
  const OperationRef ref = communicators_.FindOperation(bits, kind);
  if (ref.communicator == nullptr) return Ignore(IgnoredReason::kForeignHandle);
  switch (kind) {
    case TicketKind::kOperation:
      return StopOperation(ref);
    case TicketKind::kProxyOp:
      return StopProxyOp(ref);
    default:
      return Ignore(IgnoredReason::kForeignHandle);
  }
}

void Tracker::RecordStep(uint64_t ticket, int state, const uint64_t* bytes) {
  if (Ticket::Kind(ticket) != TicketKind::kProxyStep) return RecordState(ticket, state);
  steps_.Record(ticket, state, bytes);
}

void Tracker::RecordState(uint64_t bits, int state) {
  if (bits == 0) return Ignore(IgnoredReason::kNullHandle);
  if (Ticket::Process(bits) != instruments_.process_tag) {
    return Ignore(IgnoredReason::kForeignHandle);
  }
  constexpr int kLastKnownState = 31;  // KernelPhaseStop, API v7
  if (state < 0 || state > kLastKnownState) return Ignore(IgnoredReason::kUnknownState);
  // The known states (a ProxyOp in progress, an API call at its group's end) are not exported. A
  // state for an operation that is long gone counts as ignored.
  if (Ticket::Kind(bits) != TicketKind::kProxyOp) return;
  const OperationRef ref = communicators_.FindOperation(bits, TicketKind::kProxyOp);
  if (ref.communicator == nullptr) return Ignore(IgnoredReason::kForeignHandle);
  if (const Refusal refusal = ref.slot().Check(ref.generation)) Ignore(*refusal);
}

}  // namespace nccl_pulse
