// The finding about one communicator whose ranks wait: the part of the job's finding that concerns it, as
// data. words.h puts it into sentences.
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

// A Send or Recv that a rank waits in, and the peer that has not made the matching call.
struct PeerOwes {
  const RankView* rank = nullptr;
  const RankView* peer = nullptr;
  bool sends = false;  // the rank does; else it receives
};

struct Stall {
  const CommunicatorView* view = nullptr;
  const ViewWaits* waits = nullptr;
  HangVerdict verdict = HangVerdict::kUnknown;
  Situation situation = Situation::kPlain;
  int finding = -1;  // see Hang::finding
  int64_t since_ns = 0;
  std::string op;
  Ranks suspects;  // in the order of the view
  Ranks waiting;   // without suspects
  Ranks victims;   // ended or aborted after they had begun to wait
  Ranks followed;  // events of the same kind that came after the suspects'
  uint64_t longest_wait_before_ns = 0;
  bool is_usual = false;

  Calls owed;                   // by the suspects, where calls are compared
  Calls before;                 // how often they have called these kinds
  Calls last;                   // their last call, if its operation is owed, too
  std::vector<PeerOwes> peers;  // Sends and Recvs
  bool is_exchange = false;     // of an exchange of all ranks, they owe the whole

  std::vector<int32_t> unseen;        // ranks
  std::size_t absent_in = 0;          // view in which ranks are found that have not joined
  ReplayPlace replay;                 // where the waiting ranks are
  std::optional<uint64_t> elsewhere;  // communicator in which the suspects may wait
  bool is_elsewhere_unsure = false;   // it may be on another GPU
  bool is_posted = false;             // of kUnknown: see CannotTell
  Ranks also_blocked;                 // have not come either, and may wait elsewhere
  std::string peer_op;                // of two ranks: the call that the suspect has not made
  std::vector<std::pair<const CommunicatorView*, const RankView*>> circle;

  bool are_all_seen() const { return waits->facts.are_all_seen(); }
};

// One for each view; null: nothing is found. `waits` and `jobs` are of `views`.
std::vector<std::optional<Stall>> StallsOf(const std::vector<CommunicatorView>& views,
                                           const Waits& waits, const std::vector<JobFindings>& jobs,
                                           int64_t now_realtime_ns);

}  // namespace nccl_pulse

#endif  // EXPORTER_DIAGNOSIS_WAITS_STALL_H_
