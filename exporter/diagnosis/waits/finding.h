// The findings of the graph of waits for each job: the roots that remain, in the order of their stands.
//
// Thread: any, no state. Points into the views.
#ifndef EXPORTER_DIAGNOSIS_WAITS_FINDING_H_
#define EXPORTER_DIAGNOSIS_WAITS_FINDING_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "exporter/diagnosis/facts/call_mismatch.h"
#include "exporter/diagnosis/facts/rank_view.h"
#include "exporter/diagnosis/waits/arrows.h"
#include "exporter/diagnosis/waits/graph.h"

namespace nccl_pulse {

// The others wait for these actors, or for one of them. All have one stand.
struct NamedRoots {
  Stand stand{};
  std::vector<uint32_t> actors;
  std::vector<uint32_t> followed;  // events of the same kind that came later
};
// Each waits for the next.
struct CircleOfWaits {
  std::vector<uint32_t> actors;  // hosts, GPUs and calls in turn
};
// The ranks of one communicator called different things as the same call.
struct DifferentCalls {
  std::size_t view = 0;
};
// All ranks are inside the same call, as far as they are known.
struct NoProgress {
  std::size_t view = 0;
  bool is_in_replay = false;
};
// GPUs are behind work that isn't NCCL's, and nobody is known to wait for them in NCCL.
struct QueuedWaits {
  std::size_t view = 0;
};
struct CannotTell {
  std::size_t view = 0;
  bool is_posted = false;  // a circle, of work that may have been posted ahead
};

struct Finding {
  std::variant<NamedRoots, CircleOfWaits, DifferentCalls, NoProgress, QueuedWaits, CannotTell> what;
  // Communicators whose ranks wait directly for what is found, in order.
  std::vector<std::size_t> views;
  int64_t since_ns = 0;  // since when the first of these ranks has waited
  // The least that each of the waiting ranks has waited before in such a call, and then gone on.
  uint64_t longest_wait_before_ns = 0;
  bool can_end = false;   // it may be usual: what is found is no death, no mismatch ...
  bool is_usual = false;  // usual_wait.h: in each of these communicators
};

template <typename T>
const T* Get(const Finding& finding) {
  return std::get_if<T>(&finding.what);
}

struct JobFindings {
  std::vector<std::size_t> views;  // of the job
  std::vector<Finding> findings;   // empty: nothing is found to hang
};

// One entry for each job: communicators that share processes, whatever job ids say.
std::vector<JobFindings> FindWaits(const std::vector<CommunicatorView>& views, const Waits& waits,
                                   int64_t now_realtime_ns);

}  // namespace nccl_pulse

#endif  // EXPORTER_DIAGNOSIS_WAITS_FINDING_H_
