// From a dump's entries to what its rank has called in a group: entries of coalesced calls are put
// together, and what nobody asks for later is dropped.
//
// Thread: any, no state. Cost: that of sorting.
#ifndef EXPORTER_FLIGHT_RECORDER_ENTRIES_H_
#define EXPORTER_FLIGHT_RECORDER_ENTRIES_H_

#include <cstdint>
#include <vector>

#include "exporter/flight_recorder/dump.h"

namespace nccl_pulse::flight_recorder {

struct Entry {
  uint32_t kind = 0;  // of `Common`
  State state = State::kScheduled;
  bool is_point_to_point = false;
  bool is_closing = false;  // it ends coalesced calls
  bool is_retired = true;   // the watchdog has seen it end
  int32_t peer = -1;        // in the group, of Send and Recv; -1: not known
  uint64_t collective = 0;  // of Send and Recv: the last collective before it
  uint64_t point_to_point = 0;
  int64_t created_ns = 0, completed_ns = 0;  // 0: not known
};

// `entries`: those of the group, as they were made. `is_only_open`: see Dump.
void AddEntries(const std::vector<Entry>& entries, bool is_only_open, Common* common,
                Membership* membership);

}  // namespace nccl_pulse::flight_recorder

#endif  // EXPORTER_FLIGHT_RECORDER_ENTRIES_H_
