// The segment of one process of a made-up job, and what the plugin would write into it while the
// job runs: through the same calls, so that the reader and all behind it see what they see of a
// real job.
//
// Thread: one writes; the segment may be read meanwhile by any. Memory: about 35 KiB for a
// communicator.
#ifndef BENCH_FLEET_MADE_UP_RANK_H_
#define BENCH_FLEET_MADE_UP_RANK_H_

#include <cstdint>
#include <vector>

#include "bench/fleet/made_up_job.h"
#include "metrics/lane_writer.h"
#include "metrics/testing/test_segment.h"

namespace nccl_pulse {

class MadeUpRank {
 public:
  // Two calls of each operation have been made, so every series is there from the start.
  MadeUpRank(const JobShape& job, int global_rank, int communicators);

  // The job has run for `ns` more.
  void Advance(uint64_t ns);

  Segment& segment() { return test_.segment(); }

 private:
  struct Operation {
    const OperationKind* kind;
    bool network;
    NameId name;
    uint32_t size_class;
    uint64_t calls = 0;
    uint64_t due_ns = 0;  // since the last call
  };
  struct Communicator {
    uint32_t index;
    uint32_t generation;
    int nranks;
    bool of_all_ranks;
    std::vector<Operation> operations;
  };

  void AddCommunicator(const JobShape& job, int global_rank, const Membership& membership);
  void WriteIdentity(const JobShape& job, int global_rank);
  void RenewTimes();
  void Call(const Communicator& communicator, Operation* operation);
  void Complete(const Communicator& communicator, const Operation& operation, bool timed);
  void CrossNetwork(const Communicator& communicator, const Operation& operation,
                    uint64_t duration_ns);
  uint64_t DurationNs(const Operation& operation);

  TestSegment test_;
  std::vector<Communicator> communicators_;
  uint64_t network_observed_ns_ = 0;
  uint64_t random_;
};

}  // namespace nccl_pulse

#endif  // BENCH_FLEET_MADE_UP_RANK_H_
