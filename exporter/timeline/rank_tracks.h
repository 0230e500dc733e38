// DrawRank draws the tracks of one rank of a communicator.
//
// Thread: one, as the trace.
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
  const NotCalled* not_called = nullptr;
  std::vector<const RankWait*> waits;
  std::string suspicion;  // the verdict; "": no suspect
};

// Draws below `parent`. Leaves out empty tracks.
void DrawRank(const SeenRank& rank, const CallIndex& index, const RankFinding& finding,
              PerfettoTrace::Track parent, PerfettoTrace* trace, TimelineSummary* summary);

std::string CallWords(const SeenCall& call);  // "AllReduce 4 KiB"
std::string RankWords(const SeenRank& rank);  // "rank 3 of dp (node-1, pid 4711)"

}  // namespace nccl_pulse

#endif  // EXPORTER_TIMELINE_RANK_TRACKS_H_
