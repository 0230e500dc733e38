// FindGroupCalls finds which collectives of each process group each rank has called and completed.
//
// A rank's dump has only its last calls, or only its incomplete ones. What the rank has called is
// known from its last call in the group, or from the group's status in the dump. If its dump begins
// before the group's first call and has no call in the group, the rank has called none. Otherwise
// `is_known` is false.
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
  uint64_t called = 0;     // number of the last called collective; 0: none
  uint64_t completed = 0;  // all collectives up to this number are complete

  bool has_open() const { return is_known && completed < called; }
};

struct GroupCalls {
  const Group* group = nullptr;
  std::vector<RankCalls> ranks;  // ranks with a dump, in the group's order
};

std::vector<GroupCalls> FindGroupCalls(const std::vector<Dump>& dumps);

}  // namespace nccl_pulse::flight_recorder

#endif  // EXPORTER_FLIGHT_RECORDER_GROUP_CALLS_H_
