// Stall holds what a job's finding means for one communicator.
//
// Thread: plain data; points into the views.
#ifndef EXPORTER_DIAGNOSIS_WAITS_STALL_H_
#define EXPORTER_DIAGNOSIS_WAITS_STALL_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "exporter/diagnosis/diagnosis_result.h"
#include "exporter/diagnosis/facts/call_counts.h"
#include "exporter/diagnosis/waits/arrows.h"
#include "exporter/diagnosis/waits/finding.h"

namespace nccl_pulse {

// A Send or Recv in which a rank waits, and the peer that has not made the matching call.
struct PeerOwes {
  const RankView* rank = nullptr;
  const RankView* peer = nullptr;
  bool sends = false;  // the rank sends; false: it receives
};

struct Stall {
  const CommunicatorView* view = nullptr;
  const ViewWaits* waits = nullptr;
  Hang hang;               // its ranks and words are set last
  Ranks suspects;          // in the order of the view
  Ranks waiting;           // not including suspects
  Ranks victims;           // waiting ranks that ended, or aborted
  Ranks followed;          // ranks with an event that may be a consequence of the suspects'
  bool has_start = false;  // a rank here has waited for longer than the threshold

  Calls owed;                   // calls that the suspects have not made, if calls are compared
  Calls before;                 // the suspects' earlier calls of these kinds
  std::vector<PeerOwes> peers;  // Sends and Recvs
  bool is_exchange = false;     // the missing call is a whole exchange of all ranks

  std::vector<int32_t> unseen;        // ranks
  std::optional<uint64_t> elsewhere;  // communicator in which the suspects may wait
  bool is_posted = false;             // if the verdict is kUnknown: see CannotTell
  bool is_of_circle = false;          // the suspect left the order of calls, see NamedRoots
  Ranks also_blocked;                 // further ranks that have not arrived, and may wait elsewhere
  std::string peer_op;                // with two ranks: the call that the suspect has not made
  std::vector<std::pair<const CommunicatorView*, const RankView*>> circle;

  bool are_all_seen() const { return waits->facts.are_all_seen(); }
};

// Returns one entry per view; empty: no stall. `waits` and `jobs`: from BuildWaits and FindWaits
// for `views`.
std::vector<std::optional<Stall>> StallsOf(const std::vector<CommunicatorView>& views,
                                           const Waits& waits, const std::vector<JobFindings>& jobs,
                                           int64_t now_realtime_ns);

// Returns the operation in which these ranks of the communicator wait, if they all wait in the same
// one or have ever called only one; else "".
std::string OpOfWaits(const ViewWaits& waits, const Ranks& waiting);

// Functions of sentences.cc. They describe a stall for an on-call engineer. Each clause states a
// checked fact.

std::string StallWords(const Stall& stall);

// Returns the call that the suspects have not made, such as "Recv from rank 1". "": several calls.
std::string MissingPeerCall(const Stall& stall);

// Returns sentences about GPUs that have not begun their launches, if no rank is known to wait for
// them. `with_elsewhere`: also names the communicator in which they may wait, unseen.
std::string QueuedWords(const Stall& queued, bool with_elsewhere);

}  // namespace nccl_pulse

#endif  // EXPORTER_DIAGNOSIS_WAITS_STALL_H_
