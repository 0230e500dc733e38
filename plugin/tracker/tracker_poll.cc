// Tracker, the part for the background thread.
#include "plugin/tracker/counting.h"
#include "plugin/tracker/settling.h"
#include "plugin/tracker/tracker.h"

namespace nccl_pulse {

bool Tracker::SettleIdle() {
  const uint64_t now_ns = instruments_.clock.NowNs();
  bool any_open = false;
  for (Communicator& communicator : communicators_) {
    if (!communicator.is_live()) continue;  // settled by finalize
    chunks_.KeepToSettle();
    any_open |= nccl_pulse::SettleIdle(instruments_, communicator, now_ns);
  }
  return any_open;
}

bool Tracker::PollLaunches() {
  const uint64_t now_ns = instruments_.clock.NowNs();
  bool in_flight = false;
  // Destroying an event can wait for kernels that hang.
  const bool may_destroy = !is_stalled_;
  is_stalled_ = false;
  for (Communicator& communicator : communicators_) {
    chunks_.KeepToSettle();
    if (instruments_.stream_timer != nullptr) {
      in_flight |= communicator.watch.Poll(instruments_, communicator, work_, now_ns, may_destroy,
                                           &is_stalled_);
      PublishUnreportedCalls(communicator);
    }
    FollowOperations(communicator);
  }
  if (graphs_.is_on()) in_flight |= graphs_.Poll(communicators_, now_ns);
  return in_flight;
}

void Tracker::PublishUnreportedCalls(Communicator& communicator) {
  const CommunicatorParts* parts = communicator.parts.acquire();
  if (parts == nullptr) return;
  const uint32_t record_generation = communicator.record_generation.load();
  const PendingCalls pending = parts->launches.pending();
  const uint32_t unfinished =
      communicator.is_live() ? work_.UnfinishedCalls(communicator, record_generation) : 0;
  UnlaunchedCalls& standing = communicator.standing;
  if (!standing.Look(record_generation, unfinished, parts->launches.unreported(), pending,
                     parts->ring.reported(), communicator.awaited_ends.is_open(),
                     communicator.is_live() && parts->launches.is_launching(),
                     instruments_.clock)) {
    return;
  }
  // The lane is held so that the record is not recycled meanwhile.
  LaneWriter lane(instruments_.segment, *communicator.record, record_generation,
                  LaneRole::kBackground);
  if (!lane.ok()) return standing.Retry();
  communicator.Writer(instruments_.segment)
      .StoreUnreportedCalls(standing.calls(), standing.since_ns(), standing.are_in_group());
}

void Tracker::CountUnreported() {
  if (instruments_.stream_timer == nullptr) return;  // pending calls are not known
  for (Communicator& communicator : communicators_) {
    CommunicatorParts* const parts = communicator.parts.acquire();
    if (parts != nullptr) parts->unreported.Look(instruments_, communicator);
  }
}

void Tracker::FollowOperations(Communicator& communicator) {
  RecordWriter record = communicator.Writer(instruments_.segment);
  const CompletionSource source = record.completion_source();
  if (source == CompletionSource::kStream) return;  // CUDA events are more precise
  if (!communicator.is_live() || instruments_.timing == TimingMode::kOff) {
    record.ChangeCompletionSource(source, CompletionSource::kNone);  // not polled any longer
    return;
  }
  const bool by_kernel = instruments_.times_kernels();
  const uint32_t record_generation = communicator.record_generation.load();
  InflightOperations& inflight = communicator.inflight;
  inflight.Look(record_generation, communicator.parts.load()->ring, by_kernel);
  if (!inflight.is_known()) return;
  // The lane is held so that the record is not recycled meanwhile, and still belongs to the polled
  // communicator.
  const LaneWriter lane(instruments_.segment, *communicator.record, record_generation,
                        LaneRole::kBackground);
  if (!lane.ok()) return;  // the next round will do it
  record.StoreOldestOperation(inflight.oldest_ns());
  record.ChangeCompletionSource(source,
                                by_kernel ? CompletionSource::kKernel : CompletionSource::kProxy);
}

void Tracker::SetTimedLaunches(int per_second) {
  Sampler& sampler = instruments_.sampler;
  sampler.SetBudget(per_second);
  // At first the rate is not known. A fixed share (one launch in n) does not need it.
  if (sampled_gpus_ != 0) sampler.Adapt(launches_per_second_, sampled_gpus_);
  HeaderWriter(instruments_.segment).StoreSamplingExponent(sampler.exponent());
}

void Tracker::AdaptSampling() {
  if (instruments_.stream_timer == nullptr || !instruments_.samples()) return;
  const uint64_t now_ns = instruments_.clock.NowNs();
  uint64_t launches = 0;
  uint64_t devices = 0;
  for (Communicator& communicator : communicators_) {
    CommunicatorParts* const parts = communicator.parts.acquire();
    if (parts == nullptr || !parts->launches.timer().is_on()) continue;
    CommunicatorTimer& timer = parts->launches.timer();
    devices |= uint64_t{1} << (timer.device() & 63);
    launches += StreamTimer::TakeLaunches(timer);
  }
  if (adapted_ns_ != 0 && now_ns > adapted_ns_) {
    const double seconds = static_cast<double>(now_ns - adapted_ns_) / 1e9;
    Sampler& sampler = instruments_.sampler;
    launches_per_second_ = static_cast<double>(launches) / seconds;
    sampled_gpus_ = __builtin_popcountll(devices);
    sampler.Adapt(launches_per_second_, sampled_gpus_);
    HeaderWriter(instruments_.segment).StoreSamplingExponent(sampler.exponent());
  }
  adapted_ns_ = now_ns;
}

}  // namespace nccl_pulse
