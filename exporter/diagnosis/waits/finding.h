// FindWaits follows the graph of waits (graph.h) to its roots, the actors that wait for no other,
// and returns each job's findings: which roots the job waits for, or why none can be named.
//
// Thread: any, no state. Results are indices of views and actors.
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

// The job waits for these actors, or for one of them. All have the same ActorState. An actor is
// given by its index in the graph; a host is a host thread (a process on one GPU), not a machine.
struct NamedRoots {
  ActorState state{};
  std::vector<uint32_t> actors;
  std::vector<uint32_t> followed;  // later ends, stops or driver errors: possible consequences
  // The view in which the host's own work may wait. Set only if the actor is a host that called in
  // another order than two or more other ranks, and these wait for it.
  std::optional<std::size_t> waits_in{};
};
// Actors in a circle, each waiting for the next.
struct CircleOfWaits {
  std::vector<uint32_t> actors;  // hosts, GPUs and calls, in order
};
// The ranks of one communicator made different calls with the same number.
struct DifferentCalls {
  std::size_t view = 0;
};
// Ranks are inside a call, and no rank is known to block them.
struct NoProgress {
  std::size_t view = 0;
  bool is_in_replay = false;
};
// Other work keeps GPUs from NCCL's work, and no rank is known to wait for these GPUs in NCCL.
struct QueuedWaits {
  std::size_t view = 0;
};
// The cause of the job's wait can't be seen.
struct CannotTell {
  std::size_t view = 0;
  // The waits form a circle, but a host in it may have posted its work ahead and be elsewhere.
  bool is_posted = false;
};

struct Finding {
  std::variant<NamedRoots, CircleOfWaits, DifferentCalls, NoProgress, QueuedWaits, CannotTell> what;
  // Communicators whose ranks wait directly for the finding, in order.
  std::vector<std::size_t> views;
};

template <typename T>
const T* Get(const Finding& finding) {
  return std::get_if<T>(&finding.what);
}

struct JobFindings {
  std::vector<std::size_t> views;  // of the job
  std::vector<Finding> findings;   // empty: no hang
};

// Returns one entry per job. A job is communicators that share processes, whatever job IDs say.
std::vector<JobFindings> FindWaits(const std::vector<CommunicatorView>& views, const Waits& waits);

}  // namespace nccl_pulse

#endif  // EXPORTER_DIAGNOSIS_WAITS_FINDING_H_
