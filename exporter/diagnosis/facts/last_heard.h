// LastHeard keeps the last snapshots of processes in hung communicators, for polls of `pulse watch`
// in which their endpoint is silent.
//
// A silent endpoint does not change the verdict: a rank that has not called is still the rank that
// the others wait for. So AddTo adds such a process to the set, as of its last snapshot, and the
// graph of waits gives the same result as before. A process is dropped when
//   - its endpoint answers: the answer has the process, or it has ended;
//   - a rank that waited with it has completed work, in which the process may have taken part;
//   - no reported rank of its job waits any longer.
//
// Thread: one. Memory: kMost processes, without the data for stragglers.
#ifndef EXPORTER_DIAGNOSIS_FACTS_LAST_HEARD_H_
#define EXPORTER_DIAGNOSIS_FACTS_LAST_HEARD_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "exporter/diagnosis/diagnosis_result.h"
#include "exporter/diagnosis/facts/snapshot_set.h"

namespace nccl_pulse {

class LastHeard {
 public:
  static constexpr std::size_t kMost = 512;

  // Adds the kept processes whose endpoints are not in `heard` to `set`. Call before the diagnosis.
  void AddTo(const std::set<std::string>& heard, SnapshotSet* set);
  // Replaces the kept processes. Call after the diagnosis of `set`, with its result. `endpoint_of`
  // returns the endpoint of a process that was reported in this poll.
  void Keep(const SnapshotSet& set, const DiagnosisResult& diagnosis, int64_t now_realtime_ns,
            const std::function<std::string(const ProcessSnapshot& process)>& endpoint_of);

 private:
  SnapshotSet remembered_;              // processes; named ranks first
  std::vector<std::string> endpoints_;  // one per process
  std::set<uint64_t> stalled_;          // communicators
};

}  // namespace nccl_pulse

#endif  // EXPORTER_DIAGNOSIS_FACTS_LAST_HEARD_H_
