#include "plugin/tracker/instruments.h"

namespace nccl_pulse {

Instruments::Instruments(Segment& segment, Clock& clock, TimingMode timing,
                         const CudaDriver* driver, int32_t pid, uint32_t process_tag,
                         int timed_launches_per_second)
    : segment(segment),
      clock(clock),
      timing(timing),
      pid(pid),
      process_tag(process_tag & ((1u << Ticket::kProcessBits) - 1)),
      operation_issuer(Ticket::MakeIssuer(this->process_tag, TicketKind::kOperation)),
      sampler(timed_launches_per_second),
      stream_timer(driver != nullptr && timing != TimingMode::kOff
                       ? std::make_unique<StreamTimer>(*driver)
                       : nullptr),
      launch_issuer(stream_timer != nullptr
                        ? Ticket::MakeIssuer(this->process_tag, TicketKind::kLaunch)
                        : UINT32_MAX),
      unsampled_fate(samples() ? UntimedReason::kNotSampled : UntimedReason::kNotTimed),
      names(segment.names()),
      send_name(names.Find("Send").id),
      receive_name(names.Find("Recv").id),
      channel_issuer(Ticket::MakeIssuer(this->process_tag, TicketKind::kKernelChannel)),
      user_tags(segment.WritableHeader()) {
  StdAtomics::PrepareHeavyFence();
  const bool times_streams = stream_timer != nullptr && samples();
  HeaderWriter(segment).StoreSamplingExponent(times_streams ? sampler.exponent() : -1);
}

}  // namespace nccl_pulse
