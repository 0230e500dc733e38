// BuildWaits builds the graph of waits (graph.h) from the facts about each rank.
//
//   actor                                          its arrows
//   GPU inside a collective                        to the call, and from the call to each rank that
//                                                  has not arrived: to its host if it has not
//                                                  called, to its GPU if it has not begun
//   GPU inside a Send or Recv                      to the peer without the matching call
//   GPU that has not begun a launch                to earlier work on this GPU; a root if there is
//                                                  none
//   host inside NCCL                               to the ranks that have not arrived
//   host outside NCCL with its own work in flight  to that work: it may wait for it
//
// A cause precedes its effect. So an event (the end of a process, a stop, a driver's error) is a
// root only for waits that began after it, or at most kCauseSlackNs before it. A process that ended
// later is judged by its last state before the end.
//
// Thread: any, no state. Cost: linear in the ranks, and in the arrows of calls to ranks that have
// not arrived.
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

// How long a GPU may be behind its own earlier work before this counts as a stall: this many times
// the threshold, and at least this time.
inline constexpr int64_t kQueuedFactor = 6;
inline constexpr int64_t kLeastQueuedNs = 60000000000;

struct ViewWaits {
  CommunicatorFacts facts;
  std::vector<Member> members;       // in the order of the view's ranks
  std::vector<std::size_t> outside;  // live members: idle, in exit(), or launched but not begun
  std::vector<uint32_t> gpus;        // actor of each member; kNoActor: no work in flight
  std::optional<Mismatch> mismatch;
  Ranks absent;  // ranks that haven't joined a communicator being created, as seen in another
  bool is_being_made = false;
  bool is_left = false;  // most ranks have aborted the communicator and continued
  bool has_backlog =
      false;  // the ends of its launches may be seen late, so it does not count as a hang yet
  bool is_beyond_limit =
      false;  // some work of a rank is not followed, because its GPU has too much in flight
};
inline constexpr uint32_t kNoActor = UINT32_MAX;

struct Waits {
  WaitGraph graph;
  std::vector<ViewWaits> views;  // one for each view
};

// `views` must outlive the result.
Waits BuildWaits(const std::vector<CommunicatorView>& views, int64_t now_realtime_ns);

}  // namespace nccl_pulse

#endif  // EXPORTER_DIAGNOSIS_WAITS_ARROWS_H_
