// Follows a hang from one communicator to the next. A rank that has not called may itself wait in
// another communicator. Then it is not the cause: the rank that it waits for is.
//
// Two ranks may wait together when they are of one process and use one GPU. Where it is not known
// whether they use the same GPU, they are taken for ranks that may.
//
// Work in flight is not a host that waits: nothing tells whether a host waits for what it has
// launched, or has posted it ahead and is elsewhere. So:
//
//   a rank that shares a communicator with the     is not thought to wait: hosts do not wait for
//   suspect has the same work in flight, and       that work
//   has gone on behind it
//   a chain of such waits ends                     at the rank that is the cause
//   it is a circle, all of calls that all ranks    kCircularWait: they use their communicators in
//   make in one order                              different orders. Whether they wait is not known
//   it is a circle with a call that may have       nobody is named: its host may be elsewhere
//   been posted ahead (Recv, Broadcast)
//   it is a circle, and a step may be one from     every suspect in it stays one
//   a GPU to another
//
// Thread: any, no state.
#ifndef EXPORTER_DIAGNOSIS_BLOCKED_ELSEWHERE_H_
#define EXPORTER_DIAGNOSIS_BLOCKED_ELSEWHERE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "exporter/diagnosis/hang_finding.h"

namespace nccl_pulse {

// The ranks of each process, over all communicators.
class RanksOfProcesses {
 public:
  struct Member {
    std::size_t view;  // index of it
    const RankView* rank;
  };

  explicit RanksOfProcesses(const std::vector<CommunicatorView>& views);
  // Those of the process whose rank this is: in the order of the views.
  const std::vector<Member>& Of(const RankView& rank) const { return by_process_.at(rank.process); }

 private:
  std::unordered_map<const ProcessSnapshot*, std::vector<Member>> by_process_;
};

// `findings`: one for each view.
void FollowWaits(const std::vector<CommunicatorView>& views, const RanksOfProcesses& ranks,
                 int64_t hang_after_ns, int64_t now_realtime_ns,
                 std::vector<std::optional<HangFinding>>* findings);

// Before the function above: drops waits for ranks that are in a collective whose data moves, or in one
// that waits for such, and for ranks whose GPUs have not begun a launch and still complete earlier ones.
void DropWhatMoves(const std::vector<CommunicatorView>& views, const RanksOfProcesses& ranks,
                   int64_t hang_after_ns, int64_t now_realtime_ns,
                   std::vector<std::optional<HangFinding>>* findings);

// Whether what one of the ranks has launched `here`, and its GPU has not begun, may stand behind a
// launch on another communicator.
bool AreBehindNccl(const RanksOfProcesses& all, std::size_t here, const Ranks& ranks);

// A communicator other than `here` on a GPU of one of the ranks, in which work may stand unseen.
std::optional<uint64_t> UnseenElsewhere(const std::vector<CommunicatorView>& views,
                                        const RanksOfProcesses& all, std::size_t here,
                                        const Ranks& ranks);

}  // namespace nccl_pulse

#endif  // EXPORTER_DIAGNOSIS_BLOCKED_ELSEWHERE_H_
