// FindGroupCalls finds each rank's called and completed collectives in each process group, by its
// dump.
//
// A dump shows one moment, and holds the last calls, or only incomplete ones. So a rank's calls are
// known from its last call in the group, from the group's status, or because the dump goes back
// further than the group's first call. If nothing shows them, `is_known` is false.
//
// Thread: any, no state. The result points into the dumps.
#ifndef EXPORTER_FLIGHT_RECORDER_GROUP_CALLS_H_
#define EXPORTER_FLIGHT_RECORDER_GROUP_CALLS_H_

#include <cstdint>
#include <vector>

#include "exporter/flight_recorder/dump.h"

namespace nccl_pulse::flight_recorder {

struct RankCalls {
  const Dump* dump = nullptr;
  const Membership* membership = nullptr;  // in the dump
  int32_t rank = 0;                        // in the group

  bool is_known = false;
  uint64_t called = 0;     // last collective; 0: none
  uint64_t completed = 0;  // last collective completed with all before it

  bool has_open() const { return is_known && completed < called; }
};

struct GroupCalls {
  const Group* group = nullptr;
  std::vector<RankCalls> ranks;  // with a dump, in order
};

std::vector<GroupCalls> FindGroupCalls(const std::vector<Dump>& dumps);

}  // namespace nccl_pulse::flight_recorder

#endif  // EXPORTER_FLIGHT_RECORDER_GROUP_CALLS_H_
