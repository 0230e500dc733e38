// Draws what was seen of a job as a trace for ui.perfetto.dev. What each track means:
// docs/debug-a-slow-job.md#timeline.
//
// Times are those of each node's CLOCK_REALTIME, as its endpoint gave them; none is corrected. What
// is not known is not drawn, or is drawn where it says so: a call without a time of its own at the
// look that saw it first, a duration at the earliest time at which the GPU can have begun it.
//
// Thread: any, no state. Memory: with the recording about 2.5 KB a call that has a duration.
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
  std::size_t processes = 0, ranks = 0;  // a process is a rank of each of its communicators
  std::size_t calls = 0;
  std::size_t timed = 0;
  std::size_t without_time = 0;
  std::size_t gap_calls = 0;          // that were made and not seen
  std::size_t open = 0;               // ranks whose newest call is not known to have ended
  std::size_t not_called = 0;         // ranks that have not called what others have
  std::size_t not_called_unseen = 0;  // had not, and were not looked at to the end
  std::size_t flows = 0;              // collectives that are joined over ranks
  std::size_t missing_live = 0;       // ranks that live, and whose calls were not had
};

// A rank that has not called what another has is named after so long: looks, and ranks within a look,
// are not of one moment.
inline constexpr int64_t kLeastLagNs = 100'000'000;
// Shorter waits of one rank for another are not drawn.
inline constexpr int64_t kLeastWaitNs = 1'000'000;

// The content of the file.
std::string DrawTimeline(const Observation& seen, TimelineSummary* summary);

}  // namespace nccl_pulse

#endif  // EXPORTER_TIMELINE_TIMELINE_H_
