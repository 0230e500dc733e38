// Remembers what the processes of a stalled job said last, for the looks in which their endpoint is silent.
//
// Silence contradicts nothing: a rank that has not called is still the rank that the others wait for.
// So AddTo adds such a process to the set, as of when it was heard, and the graph of waits finds what
// it found before. A process is forgotten when
//
//   its endpoint answers           its own word counts, or it has ended and is forgotten there as well
//   a rank that waited with it     has completed something: the process may have taken part in it
//   nobody is heard who waits      on its communicators or on those that these share processes with
//
// Nothing is remembered of jobs that do not hang.
//
// Thread: one. Memory: kMost processes, without what only stragglers are found by.
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

  // Adds the processes of endpoints that are not among `heard` to `set`. Call it before the set is
  // diagnosed.
  void AddTo(const std::set<std::string>& heard, SnapshotSet* set);
  // Replaces what is remembered. `endpoint_of` returns the endpoint of a process that was heard now.
  // Call it with what was found in the set.
  void Keep(const SnapshotSet& set, const DiagnosisResult& diagnosis, int64_t now_realtime_ns,
            const std::function<std::string(const ProcessSnapshot& process)>& endpoint_of);

 private:
  struct Remembered {
    ProcessSnapshot process;
    std::string endpoint;
  };

  std::vector<Remembered> processes_;  // ranks that are named come first
  std::set<uint64_t> stalled_;         // communicators
};

}  // namespace nccl_pulse

#endif  // EXPORTER_DIAGNOSIS_FACTS_LAST_HEARD_H_
