// Instruments holds the objects that all parts of the tracker share: segment, clock, sampler,
// stream timer and names. A process has one; each part gets a reference, so tests can pass their
// own.
//
// Thread: any. Members that change say who changes them.
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
  // If `driver` is null, launches are neither timed nor followed with CUDA events. `process_tag`:
  // this process' part of its tickets (ticket.h). `timed_launches_per_second`: see Sampler.
  Instruments(Segment& segment, Clock& clock, TimingMode timing, const CudaDriver* driver,
              int32_t pid, uint32_t process_tag, int timed_launches_per_second);
  Instruments(const Instruments&) = delete;
  Instruments& operator=(const Instruments&) = delete;

  // Counts an event that is ignored.
  [[gnu::cold, gnu::noinline]] void Ignore(IgnoredReason reason) {
    // A rare path on any thread: a read-modify-write is fine.
    HeaderWriter(segment).CountIgnored(reason);
  }
  // True if this process issued the ticket, with this kind.
  bool IsOwn(uint64_t ticket, TicketKind kind) const {
    return Ticket::Issuer(ticket) == Ticket::MakeIssuer(process_tag, kind);
  }
  bool times_kernels() const { return timing == TimingMode::kKernel; }
  bool samples() const { return timing == TimingMode::kAuto; }
  // Branch-free.
  bool IsCollective(NameId op) const {
    return static_cast<bool>(static_cast<int>(op != send_name) &
                             static_cast<int>(op != receive_name));
  }

  Segment& segment;
  Clock& clock;
  const TimingMode timing;
  const int32_t pid;
  const uint32_t process_tag;
  // Ticket::Issuer of the process' operation tickets. launch_issuer and channel_issuer: the same for
  // launches and kernel channels.
  const uint32_t operation_issuer;
  Sampler sampler;
  std::unique_ptr<StreamTimer> stream_timer;  // null without a driver, or with timing off
  const uint32_t launch_issuer;               // matches no ticket if there is no stream timer
  // True once any communicator has captured a call into a CUDA graph. From then on NCCL may report
  // operations on two threads at once (src/enqueue.cc, ncclLaunchPrepare). Set before such a
  // report.
  Relaxed<bool> has_captured{false};
  const UntimedReason unsampled_fate;  // why operations of untimed launches have no duration

  // ---- next cache line: most callbacks read only the members above
  NameCache names;
  const NameId send_name, receive_name;
  const uint32_t channel_issuer;
  UserTags user_tags;
};

}  // namespace nccl_pulse

#endif  // PLUGIN_TRACKER_INSTRUMENTS_H_
