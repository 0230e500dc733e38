// SameIds distinguishes communicators with the same ID.
//
// NCCL's ID is a hash of a value that the application creates or sets (NCCL_COMM_ID). So two jobs
// with the same setting have the same ID, and so have the runs of a restarted job. Ranks of
// different communicators never wait for each other, so they must be separated:
//
//   different numbers of ranks or nodes    different communicators
//   one ended before the other was made    earlier and later run
//   a rank is live twice                   several communicators, separated by the first criterion
//                                          that leaves no rank twice: host (if they have one node),
//                                          time of creation, job ID, start of the processes
//
// If no criterion separates them, they are mixed, and nothing is concluded from their ranks.
//
// Thread: any; points into the set. Cost: sorting the communicators.
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

  // Returns the number of a communicator among the communicators with its ID: 0 for the only or
  // first one. Live communicators come before ended ones.
  uint32_t NumberOf(const CommunicatorSnapshot& communicator) const {
    return NumberingOf(communicator).number;
  }
  bool AreMixed(const CommunicatorSnapshot& communicator) const {
    return NumberingOf(communicator).is_mixed;
  }

 private:
  struct Member {
    const ProcessSnapshot* process;
    const CommunicatorSnapshot* communicator;

    bool is_live() const { return process->end == ProcessEnd::kLive && !communicator->finalized; }
  };
  using Members = std::vector<Member>;
  struct Numbering {
    uint32_t number = 0;
    bool is_mixed = false;
  };

  static bool HasRankTwice(const Members& members);
  // Removes and returns the communicators of earlier runs.
  static Members TakeEarlier(Members* members);
  // Returns an empty list if no criterion separates them.
  static std::vector<Members> TellApart(const Members& members);
  void Add(const Members& members);
  Numbering NumberingOf(const CommunicatorSnapshot& communicator) const;

  std::unordered_map<const CommunicatorSnapshot*, Numbering>
      numberings_;  // only of communicators that share their ID with another
};

// Clears the global rank of processes that share it although they are different ranks of one
// communicator. This happens if a launcher starts one task per node: all processes of the node then
// have the task's number (SLURM_PROCID). Processes of different jobs may share a global rank.
void ForgetSharedRanks(SnapshotSet* set);

}  // namespace nccl_pulse

#endif  // EXPORTER_DIAGNOSIS_FACTS_SAME_IDS_H_
