// What the tracker's parts measure with: where they count, how they tell the time, and which
// launches they time. A process has one. A part takes it by reference, so a test hands in its own.
//
// Thread: any; what changes says how.
#ifndef PLUGIN_TRACKER_INSTRUMENTS_H_
#define PLUGIN_TRACKER_INSTRUMENTS_H_

#include <cstdint>
#include <memory>

#include "metrics/header_writer.h"
#include "metrics/kinds.h"
#include "metrics/segment.h"
#include "metrics/user_tags.h"
#include "plugin/cuda/stream_timer.h"
#include "plugin/tracker/clock.h"
#include "plugin/tracker/name_cache.h"
#include "plugin/tracker/sampler.h"
#include "plugin/tracker/ticket.h"

namespace nccl_pulse {

enum class TimingMode { kAuto, kKernel, kOff };

struct Instruments {
  // `driver` may be null: then nothing is timed on streams, and what has completed is not known.
  // `timed_launches_per_second`: see Sampler.
  Instruments(Segment& segment, Clock& clock, TimingMode timing, const CudaDriver* driver,
              int32_t pid, uint32_t process_tag, int timed_launches_per_second);
  Instruments(const Instruments&) = delete;
  Instruments& operator=(const Instruments&) = delete;

  // A callback's event is not counted, for that reason.
  [[gnu::cold, gnu::noinline]] void Ignore(IgnoredReason reason) {
    // A rare path on any thread: a read-modify-write is fine.
    HeaderWriter(segment).CountIgnored(reason);
  }
  // Whether this process gave the ticket out, for that.
  bool IsOwn(uint64_t ticket, TicketKind kind) const {
    return Ticket::Issuer(ticket) == Ticket::MakeIssuer(process_tag, kind);
  }
  bool times_kernels() const { return timing == TimingMode::kKernel; }
  bool samples() const { return timing == TimingMode::kAuto; }
  // Without a branch.
  bool IsCollective(NameId op) const {
    return static_cast<bool>(static_cast<int>(op != send_name) &
                             static_cast<int>(op != receive_name));
  }

  Segment& segment;
  Clock& clock;
  const TimingMode timing;
  const int32_t pid;
  const uint32_t process_tag;
  const uint32_t operation_issuer;  // Ticket::MakeIssuer
  Sampler sampler;
  std::unique_ptr<StreamTimer> stream_timer;  // null without a driver, or with timing off
  const uint32_t launch_issuer;               // without a stream timer that of no ticket
  // A call was captured into a CUDA graph, by any communicator. From then on NCCL may report
  // operations on two threads at once: src/enqueue.cc, ncclLaunchPrepare. Set before the first of
  // these.
  Relaxed<bool> has_captured{false};
  const UntimedReason unsampled_fate;  // of operations whose launch is not timed
  // ---- line: what is above is all that most callbacks read
  NameCache names;
  const NameId send_name, receive_name;
  const uint32_t channel_issuer;  // of kernel channels
  UserTags user_tags;
};

}  // namespace nccl_pulse

#endif  // PLUGIN_TRACKER_INSTRUMENTS_H_
