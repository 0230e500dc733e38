// Arrows to other work of the same thread: of a GPU that has not begun, to the launches in front of it;
// of a host that others wait for, to its work in flight.
//
// Thread: any. Remembers answers that are the same for many ranks.
#ifndef EXPORTER_DIAGNOSIS_WAITS_OWN_WORK_H_
#define EXPORTER_DIAGNOSIS_WAITS_OWN_WORK_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string_view>
#include <tuple>

#include "exporter/diagnosis/jobs.h"
#include "exporter/diagnosis/waits/graph_builder.h"

namespace nccl_pulse {

// It has worked on another communicator since this one was aborted: it shrank, or restarted.
bool HasGoneOnSinceAbort(const HostPlace& place, const Member& aborted);

class OwnWork {
 public:
  explicit OwnWork(GraphBuilder& graph);

  // From the GPU of that member, which has not begun.
  void AddBehind(std::size_t i, std::size_t at);
  // From a host, once it is known what it owes.
  void AddOfHost(const HostPlace& place);

 private:
  bool MayBePostedAhead(const MemberPlace& at);
  void AddAwaitedByKernel(uint32_t gpu, const MemberPlace& queued);
  // A rank that waits `here` has the same work in flight, and has gone on behind it to what the rank
  // of `work` has not called here, or its GPU not begun. So nobody waits for that work first.
  //
  // The answer is the same for all ranks that have come to the same place of their program.
  bool HaveOthersGoneOn(std::size_t here, const MemberPlace& work, bool is_called);
  bool FindOthersGoneOn(std::size_t here, const MemberPlace& work, bool is_called);
  void AddUnseenReplays(const HostPlace& place);
  void AddUnseenWork(const HostPlace& place);
  // RAS doesn't count all calls. So who has launched fewer may wait in another one, unless its GPU has run
  // nothing, or has computed, or no other rank of its job is left to wait for.
  bool MayWaitUncounted(const HostPlace& place);

  GraphBuilder& graph_;
  Jobs jobs_;
  std::map<std::size_t, std::size_t> without_work_;  // places that RAS alone knows, by job
  std::map<std::tuple<std::size_t, std::size_t, int32_t, uint64_t, std::string_view, bool>, bool>
      have_gone_on_;
};

}  // namespace nccl_pulse

#endif  // EXPORTER_DIAGNOSIS_WAITS_OWN_WORK_H_
