// AddEntries turns a dump's entries for one process group into the rank's calls in the group. It
// merges the entries of coalesced calls, and drops old completed calls.
//
// Thread: any, no state. Cost: sorting.
#ifndef EXPORTER_FLIGHT_RECORDER_ENTRIES_H_
#define EXPORTER_FLIGHT_RECORDER_ENTRIES_H_

#include <cstdint>
#include <vector>

#include "exporter/flight_recorder/dump.h"

namespace nccl_pulse::flight_recorder {

struct Entry {
  uint32_t kind = 0;  // index in `Common`
  State state = State::kScheduled;
  bool is_point_to_point = false;
  bool is_closing = false;  // entry `coalesced`, which ends coalesced calls
  bool is_retired = true;   // PyTorch's watchdog has seen the call end
  int32_t peer = -1;        // rank in the group, of Send and Recv; -1: not known
  uint64_t collective = 0;  // collective_seq_id; of a Send or Recv: the last collective before it
  uint64_t point_to_point = 0;               // p2p_seq_id
  int64_t created_ns = 0, completed_ns = 0;  // 0: not known
};

// `entries`: of the group, in creation order. `is_only_open`: the dump leaves out completed calls.
void AddEntries(const std::vector<Entry>& entries, bool is_only_open, Common* common,
                Membership* membership);

}  // namespace nccl_pulse::flight_recorder

#endif  // EXPORTER_FLIGHT_RECORDER_ENTRIES_H_
