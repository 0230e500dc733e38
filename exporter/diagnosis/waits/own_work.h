// OwnWork adds arrows to a thread's own work: from a GPU that has not begun a launch to the
// launches before it; from a host to its work in flight.
//
// Thread: one at a time. Caches results that are equal for many ranks.
#ifndef EXPORTER_DIAGNOSIS_WAITS_OWN_WORK_H_
#define EXPORTER_DIAGNOSIS_WAITS_OWN_WORK_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "exporter/diagnosis/jobs.h"
#include "exporter/diagnosis/waits/graph_builder.h"

namespace nccl_pulse {

// True if the host has worked on another communicator since this one was aborted: the job shrank,
// or was restarted.
bool HasGoneOnSinceAbort(const HostThread& thread, const Member& aborted);

class OwnWork {
 public:
  explicit OwnWork(GraphBuilder& graph);

  // Adds arrows from the GPU of member `at`, which has not begun.
  void AddBehind(std::size_t i, std::size_t at);
  // Adds arrows from an event to the work in which the process waited until then. Also adds an
  // arrow from the end of a process to the first end on its host, because a watchdog or the node's
  // launcher may have ended the process.
  void AddBeforeEvent(const HostThread& thread);
  // Adds a process' end, stop or failure for which no rank waits in NCCL: hosts outside NCCL may
  // wait for it.
  void AddUnawaitedEvent(const HostThread& thread);
  // Adds arrows from a host. Call when all calls in which others wait for it are known.
  void AddOfHost(const HostThread& thread);

 private:
  void AddFirstEnded(const HostThread& thread);
  // True if the GPU waits for an actor that is seen and can be named, other than a process that is
  // held up in the driver. A call without arrows may be over.
  bool WaitsForOther(uint32_t gpu);
  // True if the host has made all calls in which others wait on a communicator, so that they don't
  // wait for it.
  bool HasDoneItsPart(const HostThread& thread);
  bool MayBePostedAhead(const MemberIndex& at);
  bool IsBehindNccl(const Member& each);
  void AddAwaitedByKernel(uint32_t gpu, const MemberIndex& queued);
  // True if `work` does not explain why its rank has not made the call `here`, or why its GPU has
  // not begun it: another rank has the same work in flight, and has reached that call. The result
  // is equal for all ranks at the same point of their program.
  bool HaveOthersGoneOn(std::size_t here, const MemberIndex& work, bool is_called);
  bool FindOthersGoneOn(std::size_t here, const MemberIndex& work, bool is_called);
  void AddUnseenReplays(const HostThread& thread);
  void AddUnseenWork(const HostThread& thread);
  // True if a host without the plugin may wait in a call that RAS doesn't count, or, if its GPU has
  // run nothing, outside NCCL for a rank whose GPU computes. False if its own GPU has computed, or
  // if its job has no other rank left to wait for.
  bool MayWaitUncounted(const HostThread& thread);

  GraphBuilder& graph_;
  Jobs jobs_;
  std::map<std::size_t, std::size_t> without_work_;  // by job: host threads known only from RAS
  std::set<std::size_t> computing_;  // jobs in which the GPU of such a host thread computes
  // By job: processes with a GPU that is behind work other than NCCL's.
  std::map<std::size_t, std::set<const ProcessSnapshot*>> behind_kernels_;
  std::vector<bool> waits_for_other_;  // by actor, see WaitsForOther; empty: not needed so far
  // By view: the fewest calls of a live rank that waits there; UINT64_MAX: none waits.
  std::map<std::size_t, uint64_t> least_waiting_;
  // The process that ended first among those that hadn't done their part, by job and host.
  std::map<std::pair<std::size_t, std::string>, MemberIndex> first_ended_;
  std::map<std::tuple<std::size_t, std::size_t, int32_t, uint64_t, std::string_view, bool>, bool>
      have_gone_on_;
};

}  // namespace nccl_pulse

#endif  // EXPORTER_DIAGNOSIS_WAITS_OWN_WORK_H_
