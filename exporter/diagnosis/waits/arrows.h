// Builds the graph of waits from what is known of each rank.
//
//   rule                                                     arrows
//   a GPU inside a collective waits for all                  to the call, and from it to each rank that
//                                                            has not come: to its host if it has not
//                                                            called, to its GPU if it has not begun
//   a GPU inside a Send or Recv                              to the peer without the matching call
//   a GPU that has not begun                                 to what its GPU works on before; without
//                                                            such work it is a root
//   a host inside NCCL                                       to the ranks that have not come
//   a host outside NCCL with work of its own in flight       to that work: it may wait for it
//
// A cause is older than its effect: an event (the end of a process, a stop, a driver's error) is a root
// only for waits that began before it or shortly after (kCauseSlackNs). Whoever ended later is judged by
// what it did until then.
//
// Thread: any, no state. Cost: linear in the ranks, and in those that have not come to a call.
#ifndef EXPORTER_DIAGNOSIS_WAITS_ARROWS_H_
#define EXPORTER_DIAGNOSIS_WAITS_ARROWS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "exporter/diagnosis/facts/call_mismatch.h"
#include "exporter/diagnosis/facts/communicator_facts.h"
#include "exporter/diagnosis/facts/member.h"
#include "exporter/diagnosis/waits/graph.h"

namespace nccl_pulse {

// How many times the threshold, and how long at least, a GPU may be behind work of its own until that
// counts as a stall.
inline constexpr int64_t kQueuedFactor = 6;
inline constexpr int64_t kLeastQueuedNs = 60000000000;

// Communicators of a process that are searched for one whose work is not seen, for a sentence.
inline constexpr std::size_t kMostSearched = 64;

struct ViewWaits {
  CommunicatorFacts facts;
  std::vector<Member> members;  // in the order of the view's ranks
  std::vector<uint32_t> gpus;   // actor of each member, kNoActor: nothing is in flight
  std::optional<Mismatch> mismatch;
  Ranks absent;  // of a communicator being created: who has not joined, where that is known
  bool is_being_made = false;
  bool is_left = false;            // a rank ended, and others have aborted it since and gone on
  bool has_backlog = false;        // its launches may end unseen, far behind: nothing is a hang yet
  bool is_beyond_limit = false;    // work of one of its ranks is not followed: the GPU has too much
  bool has_known_replays = false;  // how far its ranks are in CUDA graphs is known
  // Ranks that have not called what one rank alone has called, and may have finished without them.
  Ranks behind_one;
};
inline constexpr uint32_t kNoActor = UINT32_MAX;

struct Waits {
  WaitGraph graph;
  std::vector<ViewWaits> views;  // one for each view
};

// `views` must outlive the result.
Waits BuildWaits(const std::vector<CommunicatorView>& views, int64_t hang_after_ns,
                 int64_t now_realtime_ns);

}  // namespace nccl_pulse

#endif  // EXPORTER_DIAGNOSIS_WAITS_ARROWS_H_
