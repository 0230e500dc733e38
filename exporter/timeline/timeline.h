// DrawTimeline draws an observed job as a trace for ui.perfetto.dev.
// docs/debug-a-slow-job.md#timeline explains the tracks.
//
// Times are those of each node's CLOCK_REALTIME, uncorrected, as its endpoint reported them.
// Unknown things are not drawn, or are marked as such. A call without a time is drawn at the poll
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

// "between 12 us behind and 80 us ahead of the clock here"
std::string ClockWords(const std::optional<ClockOffset>& offset);

struct TimelineSummary {
  std::size_t processes = 0, ranks = 0;  // a process is a rank in each of its communicators
  std::size_t calls = 0;
  std::size_t timed = 0;
  std::size_t without_time = 0;
  std::size_t gap_calls = 0;          // made but not seen
  std::size_t open = 0;               // ranks whose newest call is not known to have ended
  std::size_t not_called = 0;         // ranks that have not called what others have
  std::size_t not_called_unseen = 0;  // ranks that had not, and were not polled to the end
  std::size_t flows = 0;              // collectives joined across ranks
  std::size_t missing_live = 0;       // live ranks whose calls are missing
};

// Minimum lag before a rank is reported as not calling: polls, and ranks within a poll, are not
// simultaneous.
inline constexpr int64_t kLeastLagNs = 100'000'000;
// Shorter waits between ranks are not drawn.
inline constexpr int64_t kLeastWaitNs = 1'000'000;

// Returns the file's content.
std::string DrawTimeline(const Observation& seen, TimelineSummary* summary);

}  // namespace nccl_pulse

#endif  // EXPORTER_TIMELINE_TIMELINE_H_
