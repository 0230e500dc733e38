// Tells apart communicators that have the same id.
//
// NCCL's id is a hash of what the application made or set (NCCL_COMM_ID): two jobs with one setting
// have one id, and so have the runs of a job that is restarted with it. Ranks of different
// communicators never wait for each other, so it must be known which ranks belong together:
//
//   other numbers of ranks or nodes        they are of different communicators
//   it ended before another was made       it is of an earlier run
//   one rank lives twice                   there are several. What leaves no rank twice tells which
//                                          is whose: the host of communicators of one node, when
//                                          they were made, the job id, when the processes started
//
// If nothing tells, the communicators are mixed, and nothing can be concluded from their ranks.
//
// Thread: any; made from a set, into which it points. Cost: that of sorting the communicators.
#ifndef EXPORTER_DIAGNOSIS_FACTS_SAME_IDS_H_
#define EXPORTER_DIAGNOSIS_FACTS_SAME_IDS_H_

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "exporter/diagnosis/facts/snapshot_set.h"

namespace nccl_pulse {

class SameIds {
 public:
  explicit SameIds(const SnapshotSet& set);

  // Which of the communicators with its id one of the set's is: 0 if it is the only one, or the
  // first. Communicators that live come before those that have ended.
  uint32_t NumberOf(const CommunicatorSnapshot& communicator) const {
    return PlaceOf(communicator).number;
  }
  bool AreMixed(const CommunicatorSnapshot& communicator) const {
    return PlaceOf(communicator).is_mixed;
  }

 private:
  struct Member {
    const ProcessSnapshot* process;
    const CommunicatorSnapshot* communicator;

    bool is_live() const { return process->end == ProcessEnd::kLive && !communicator->finalized; }
  };
  using Members = std::vector<Member>;
  struct Place {
    uint32_t number = 0;
    bool is_mixed = false;
  };

  static bool HasRankTwice(const Members& members);
  // Takes away those of earlier runs.
  static Members TakeEarlier(Members* members);
  // Empty: nothing tells them apart.
  static std::vector<Members> TellApart(const Members& members);
  void Add(const Members& members);
  Place PlaceOf(const CommunicatorSnapshot& communicator) const;

  std::unordered_map<const CommunicatorSnapshot*, Place> places_;  // of ids that several have
};

// Numbers of ranks that are none: a launcher that starts one task on each node gives all processes
// of the node its own number (SLURM_PROCID), and says no other.

// Clears the global rank of processes that have it in common and are different ranks of one
// communicator. Processes of two jobs may well have the same.
void ForgetSharedRanks(SnapshotSet* set);

}  // namespace nccl_pulse

#endif  // EXPORTER_DIAGNOSIS_FACTS_SAME_IDS_H_
