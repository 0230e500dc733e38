// What is found out about one communicator that makes no progress, as data: who is suspected, and
// of what. hang_verdict.h finds it, blocked_elsewhere.h follows it to other communicators, and
// hang_words.h puts it into words.
//
// Thread: plain data that points into the views.
#ifndef EXPORTER_DIAGNOSIS_HANG_FINDING_H_
#define EXPORTER_DIAGNOSIS_HANG_FINDING_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "exporter/diagnosis/call_counts.h"
#include "exporter/diagnosis/communicator_facts.h"
#include "exporter/diagnosis/diagnosis_result.h"
#include "exporter/diagnosis/peer_waits.h"

namespace nccl_pulse {

// It says which meaning a verdict has, if it has several.
enum class HangDetail : uint8_t {
  kNone,
  // kRankNotCalled
  kOwes,       // others have called what the suspects have not
  kFinalized,  // the suspects have ended the communicator
  kExiting,    // the suspects' processes are in exit()
  kPeer,       // of two ranks: the Send or Recv that the other one waits for
  kExchange,   // of ranks that exchange alike: the one that has nothing in flight
  kPeers,      // what `peer_waits` say; also of kCircularWait
  // kRankNotSeen
  kBeingMade,  // the others make the communicator
  // kMismatched
  kOperations,
  kSizes,
  kOrder,
  kCallNumber,  // the first collective that they did not call alike: see `call_number`
  kRoots,       // likewise, and the roots alone differ
  // kNoProgress
  kInsideNccl,    // none has launched what all have called
  kNotCompleted,  // the suspects have not completed a call that another rank has
  // kRankNotBegun, kNoProgress
  kWork,    // by counters of finished work: in graphs without stamps, or between them
  kReplay,  // within a replay of a CUDA graph: see `replay`
  // kNoProgress
  kQueued,  // behind earlier work of the ranks' own GPUs
  // kUnknown
  kCaptured,          // in CUDA graphs, whose replays cannot be seen
  kReplaysDiffer,     // they can, but the ranks' cannot be compared
  kReplaysMayLeave,   // nor where a rank may leave an operation before the others come
  kReplaysAlike,      // the ranks have come equally far; whether they stand there is not known
  kOverflowed,        // calls were counted without their operation
  kEventMaskChanged,  // calls may not have been counted
  kStillCalling,
  kBehindUnseen,  // some have called less, and what they have in flight cannot be seen
  kBesidePeers,   // a collective is owed, and Send and Recv are used, too
  kMixed,         // several communicators have this id
};

// Ranks that called alike, where others called something else.
struct CallSide {
  Calls calls;  // empty: neither
  Ranks ranks;
  const CallOrderSnapshot::Kind* kind = nullptr;  // of kCallNumber, kRoots: what that call was
};

// All launches of a communicator's ranks here stand behind earlier work of their own GPUs.
struct QueuedFinding {
  int64_t since_realtime_ns = 0;
  std::string op;
  Ranks ranks;
  bool are_all_seen = false;  // all ranks of the communicator are here
  // Another one of the same GPUs whose work cannot be seen.
  std::optional<uint64_t> unseen_elsewhere;
  std::string unreported_op;  // whose launches NCCL does not report: one may be the earlier work
  bool is_long = false;  // for so long that it is a hang, unless it stands behind NCCL's own work
};

// What was found out of one communicator. What is of some verdicts alone stands in parts of its own.
struct HangFinding {
  const CommunicatorView* view = nullptr;
  HangVerdict verdict = HangVerdict::kUnknown;
  HangDetail detail = HangDetail::kNone;
  int64_t since_realtime_ns = 0;
  std::string op;
  Ranks suspects;
  Ranks waiting;
  bool is_unreported = false;           // who waits has called; that it launched is not reported
  bool is_waiting_known = true;         // false: and may have finished
  bool are_all_seen = false;            // all ranks of the communicator are here
  bool not_begun_suspects = false;      // the suspects have called, but their GPUs have not begun
  bool is_queued = false;               // who waits has not begun
  QueuedFinding queued;                 // then
  uint64_t longest_wait_before_ns = 0;  // see Hang
  uint64_t longest_pause_ns = 0;        // of kWork, see WorkFacts
  bool is_usual = false;                // see Hang

  // kRankNotCalled has it, and what is said beside another verdict: calls that others have made.
  struct Owed {
    Calls calls;
    Calls before;                      // of these kinds, by the suspects: see CallsBefore
    Calls last;                        // the suspects' last call, if its operation is owed, too
    const RankView* ahead = nullptr;   // who has called most
    Ranks also;                        // owe, besides the suspects
    Ranks behind_unseen;               // have called less; whether they wait cannot be seen
    std::string peer_op;               // of kPeer
    std::vector<PeerWait> peer_waits;  // in Send and Recv, as far as the peers are known
  } owed;

  // kMismatched has it.
  struct Sides {
    std::vector<CallSide> sides;
    uint32_t call_number = 0;  // of kCallNumber, among the collectives
  } mismatch;

  // kRankNotSeen has it.
  struct NotSeen {
    std::vector<int32_t> ranks;
    Ranks absent;               // of kBeingMade: the same in a communicator of the same ranks
    std::size_t absent_in = 0;  // index of its view
  } not_seen;

  // kReplay has it.
  struct Replay {
    ReplayPlace at;                    // where those stand that wait
    bool is_begun = false;             // by the suspects, too
    bool is_first_stamp_head = false;  // else who has not passed it may have begun
  } replay;

  // Ranks with something else that is said, but no ground to suspect them.
  struct Beside {
    Ranks stopped;
    Ranks ended_waiting;  // see CommunicatorFacts
    Ranks failed;         // of kDriverError: later, or over a link
    Ranks not_begun;
    Ranks unread;  // of kWork, see WorkFacts
    Ranks idle;    // of kPointToPoint
    Ranks inside;  // likewise: inside NCCL, while others wait in what they launched
  } beside;

  // Where suspects wait meanwhile (blocked_elsewhere.h).
  struct Elsewhere {
    std::optional<uint64_t> comm_id;
    Ranks blocked;  // those that do, where others are free
    // Suspects, or ranks that would be, that may wait in another communicator where it is not seen.
    std::optional<uint64_t> unseen;  // communicator id
    Ranks unseen_ranks;
    // kBlockedElsewhere tells where each suspect is certain to wait, in the order of the suspects.
    struct Wait {
      const RankView* suspect;
      std::size_t view;  // index of it
    };
    std::vector<Wait> waits_in;
    struct Link {
      const CommunicatorView* view;
      const RankView* rank;  // is missing here, and has work in flight in the next one's
    };
    std::vector<Link> circle;
    bool is_acquitted = false;     // they may wait there, unseen: so no rank is named
    bool is_posted_ahead = false;  // of is_acquitted: what they have there may be posted ahead
    bool is_usual = false;         // the suspects wait where that is usual
  } elsewhere;
};

// One rank alone has made calls that the others have not, and may have finished them without these.
struct AheadFinding {
  const RankView* rank = nullptr;
  Ranks behind;
  Calls calls;
};

// What was found out about one communicator: one of the three, or nothing. Of what is queued `hang` is
// what to say of it as a hang (hang.cc).
struct Conclusion {
  std::optional<HangFinding> hang;
  std::optional<QueuedFinding> queued;
  std::optional<AheadFinding> ahead;
};

}  // namespace nccl_pulse

#endif  // EXPORTER_DIAGNOSIS_HANG_FINDING_H_
