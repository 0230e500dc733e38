// DrawTimeline draws an observed job as a trace for ui.perfetto.dev.
// docs/debug-a-slow-job.md#timeline explains the tracks.
//
// Times are those of each node's CLOCK_REALTIME, uncorrected, as its endpoint reported them. What
// is not known is not drawn, or is marked as not known. A call without a time is drawn at the poll
// that first saw it, a duration at its earliest possible begin on the GPU.
//
// Thread: any, no state. Memory: with the recording, about 2.5 KB per call with a duration.
#ifndef EXPORTER_TIMELINE_TIMELINE_H_
#define EXPORTER_TIMELINE_TIMELINE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "exporter/fleet/clock_offset.h"

namespace nccl_pulse {

struct Observation;

// Returns an endpoint's clock error, such as "at most 12 us behind the clock here, at most 80 us
// ahead of it".
std::string ClockWords(const std::optional<ClockOffset>& offset);

// Numbers of what a timeline shows.
struct TimelineSummary {
  std::size_t processes = 0, ranks = 0;  // a process is a rank in each of its communicators
  std::size_t calls = 0;                 // recorded
  std::size_t timed = 0;                 // calls drawn with their duration on the GPU
  std::size_t without_time = 0;          // calls whose launch time is not known
  std::size_t gap_calls = 0;             // calls that were made but not recorded
  std::size_t open = 0;                  // ranks with a call not known to have ended
  std::size_t not_called = 0;            // ranks that lack a collective of others, at the end
  std::size_t not_called_unseen = 0;     // ranks that lacked one at an earlier, last poll
  std::size_t flows = 0;                 // collectives joined across ranks
  std::size_t missing_live = 0;          // live ranks whose calls are missing
};

// Another rank must have made a call this long ago before a rank is reported as not calling: polls,
// and ranks within a poll, are not simultaneous.
inline constexpr int64_t kLeastLagNs = 100'000'000;
// Shorter waits between ranks are not drawn.
inline constexpr int64_t kLeastWaitNs = 1'000'000;

// Returns the content of the trace file. Sets `summary`.
std::string DrawTimeline(const Observation& seen, TimelineSummary* summary);

}  // namespace nccl_pulse

#endif  // EXPORTER_TIMELINE_TIMELINE_H_
