// DrawRank draws the timeline's tracks of one rank of a communicator.
//
// Thread: one at a time, like the trace.
#ifndef EXPORTER_TIMELINE_RANK_TRACKS_H_
#define EXPORTER_TIMELINE_RANK_TRACKS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "exporter/timeline/call_index.h"
#include "exporter/timeline/perfetto.h"
#include "exporter/timeline/recording.h"
#include "exporter/timeline/timeline.h"

namespace nccl_pulse {

// Findings about a rank besides its calls.
struct RankFinding {
  const NotCalled* not_called = nullptr;  // a call that the rank lacks; null: none
  std::vector<const RankWait*> waits;     // the rank's waits for others
  std::string suspicion;                  // verdict of a hang that it may cause; "": none
};

// Draws the rank's tracks below `parent`, without empty ones, and adds their content to `summary`.
void DrawRank(const SeenRank& rank, const CallIndex& index, const RankFinding& finding,
              PerfettoTrace::Track parent, PerfettoTrace* trace, TimelineSummary* summary);

std::string CallWords(const SeenCall& call);  // "AllReduce 4 KiB"
std::string RankWords(const SeenRank& rank);  // "rank 3 of dp (node-1, pid 4711)"

}  // namespace nccl_pulse

#endif  // EXPORTER_TIMELINE_RANK_TRACKS_H_
