// How far the ranks of one communicator have come in the replays of their CUDA graphs.
//
// Stamps count on each rank's GPU how often the stamps of its graphs were passed (docs/cuda-graphs.md).
// Ranks that captured the same graphs replay them in the same order. So of two ranks that one is
// behind that has begun fewer replays, or begun as many and passed fewer stamps of the last one. A
// replay that waits behind another has passed no stamp, and changes nothing.
//
//   what was captured lets no rank leave before all have come (WaitsForAll), so
//   rank B is behind rank A   ==>   A has begun what it cannot end without B, and waits
//                                   B has called and launched its part of all that A has finished:
//                                   its GPU has not come to the stamp that A has passed
//
// Nobody waits for A. Where all are alike, those with a replay between two stamps stand in it, and
// who holds it up is not known.
//
// Thread: any, no state. It points into the view.
#ifndef EXPORTER_DIAGNOSIS_REPLAY_FACTS_H_
#define EXPORTER_DIAGNOSIS_REPLAY_FACTS_H_

#include <cstdint>

#include "exporter/diagnosis/rank_view.h"

namespace nccl_pulse {

// Why ranks are not compared.
enum class ReplaysKnown : uint8_t {
  kYes,
  kNotFollowed,  // on a rank here: no stamps, or no background thread that reads them
  kDiffer,       // the ranks have not captured alike, or called differently beside the graphs
  kMayLeave,     // operations were captured that a rank may leave before the others come
};

struct ReplayFacts {
  ReplaysKnown known = ReplaysKnown::kNotFollowed;
  // All empty unless they are known. Of the live ranks:
  Ranks behind;  // furthest behind; empty when all are alike
  // Others, which wait for those and have passed no stamp for hang_after. Each has a replay between
  // two stamps, or an unfinished launch.
  Ranks standing;
  const RankView* ahead = nullptr;  // one that is furthest ahead
  bool is_not_begun = false;        // those behind have begun fewer replays than that one
  bool are_all_within = false;      // each has a replay in flight, at the same place
};

// `live`: in the order of their view.
ReplayFacts CompareReplays(const Ranks& live, int64_t hang_after_ns, int64_t now_ns);

}  // namespace nccl_pulse

#endif  // EXPORTER_DIAGNOSIS_REPLAY_FACTS_H_
