// The calls of all ranks in each process group: what each has called and completed, by its dump.
//
// A dump is of one moment, and holds the last calls, or only those that had not completed. So what
// a rank has called is known from its last call in the group, or from the group's status. Where
// neither tells, it is not known, and `is_known` is false.
//
// Thread: any, no state. It points into the dumps.
#ifndef EXPORTER_FLIGHT_RECORDER_GROUP_CALLS_H_
#define EXPORTER_FLIGHT_RECORDER_GROUP_CALLS_H_

#include <cstdint>
#include <vector>

#include "exporter/flight_recorder/dump.h"

namespace nccl_pulse::flight_recorder {

struct RankCalls {
  const Dump* dump = nullptr;
  const Membership* membership = nullptr;  // of the dump
  int32_t rank = 0;                        // in the group

  bool is_known = false;
  uint64_t called = 0;     // number of the last collective; 0: none
  uint64_t completed = 0;  // this one and all before it have completed

  bool has_open() const { return is_known && completed < called; }
};

struct GroupCalls {
  const Group* group = nullptr;
  std::vector<RankCalls> ranks;  // that have a dump, in order
};

std::vector<GroupCalls> FindGroupCalls(const std::vector<Dump>& dumps);

}  // namespace nccl_pulse::flight_recorder

#endif  // EXPORTER_FLIGHT_RECORDER_GROUP_CALLS_H_
