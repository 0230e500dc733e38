// CommunicatorFacts collects what the ranks of one communicator are known to have done. The graph
// of waits (waits/arrows.h) is built from these facts. No fact names a culprit.
//
// Thread: any, no state. Points into the communicator's view (rank_view.h).
#ifndef EXPORTER_DIAGNOSIS_FACTS_COMMUNICATOR_FACTS_H_
#define EXPORTER_DIAGNOSIS_FACTS_COMMUNICATOR_FACTS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

#include "exporter/diagnosis/facts/call_counts.h"
#include "exporter/diagnosis/facts/rank_view.h"

namespace nccl_pulse {

// ReplayFacts compares how far the ranks of a communicator are in the replays of their CUDA graphs.
//
// A stamp is a small kernel in a graph that counts how often the rank's GPU has passed it
// (docs/cuda-graphs.md). Ranks that captured the same graphs replay them in the same order. So rank
// B is behind rank A if B has begun fewer replays, or as many and has passed fewer stamps of the
// last one. A replay queued behind another has passed no stamp, and does not matter.
//
// The compared operations let no rank leave before all have arrived (WaitsForAll). So if B is
// behind A, then A waits in an operation that cannot end without B, and B's GPU has not reached the
// stamp that A has passed. No rank waits for A. If all ranks are equally far, they are stalled
// between the same two stamps, and the blocking rank is not known.

// Why ranks are not compared.
enum class ReplaysKnown : uint8_t {
  kYes,
  kNotFollowed,  // some rank has no stamps, or no background thread that reads them
  kDiffer,       // captures or replays differ, or calls outside graphs are unknown or contrary
  kMayLeave,     // some captured operation lets a rank leave before the others arrive
};

struct ReplayFacts {
  ReplaysKnown known = ReplaysKnown::kNotFollowed;
  // Lists of live ranks; empty unless the ranks are compared.
  Ranks behind;                     // furthest behind; empty if none is, or its count is wrong
  const RankView* ahead = nullptr;  // a rank that is furthest ahead
  bool are_all_within = false;      // all ranks have a replay in flight, at the same position
};

// Compares the live ranks of a view, given in its order.
ReplayFacts CompareReplays(const Ranks& live);

// WorkFacts finds stalls of a communicator with CUDA graphs, by NCCL's counters of finished work
// (docs/work-counters.md) and the kernels that its GPUs have run meanwhile (GpuUse).
//
// A counter at rest is no hang: an engine without requests finishes nothing for hours, and its GPUs
// run nothing. So for a stall, all of this must hold for half of the hang threshold:
//   - all ranks are seen, and the counter of each is at rest, or not available;
//   - some GPUs were always busy, and each other GPU has run nothing at all.
//
// A counter may not be available because a launching thread waits for room behind a replay. The
// launching thread then holds the driver's lock, which the reading thread needs. The GPU of such a
// rank is busy, but cannot have finished a collective without the ranks whose counters are at rest.
//
//   some GPUs are idle   the busy ones wait in a replay that the idle ones have not begun
//   no GPU is idle       the GPUs wait or compute, or hosts run ahead and hold the lock. It is a
//                        stall once it lasts longer than any earlier rest of the counters,
//                        including times when they were not readable
//
// A GPU that waits in NCCL's kernel is busy. Nothing is concluded if a GPU is shared with another
// process, or was partly busy.
struct WorkFacts {
  // Empty unless the communicator is stalled.
  Ranks busy;                     // ranks whose GPU is busy: it waits in NCCL's kernel
  Ranks idle;                     // ranks whose GPU has run nothing
  Ranks unread;                   // busy or idle ranks without a readable counter
  uint64_t longest_pause_ns = 0;  // longest earlier rest of a counter, of all ranks
  int64_t since_ns = 0;  // last poll that saw a counter change; without one: NVML's oldest sample

  bool is_stalled() const { return !busy.empty(); }
};

// True if some captured operation lets a rank leave before the others arrive.
bool MayLeaveReplays(const CommunicatorSnapshot& communicator);

WorkFacts CompareWork(const CommunicatorView& view, int64_t hang_after_ns, int64_t now_ns);

// Lists of ranks are in the order of their view, so sorted by address.
inline bool Contains(const Ranks& ranks, const RankView* rank) {
  return std::binary_search(ranks.begin(), ranks.end(), rank, std::less<>());
}

// Returns the `ranks` that are not in `others`.
inline Ranks Without(const Ranks& ranks, const Ranks& others) {
  Ranks left;
  std::set_difference(ranks.begin(), ranks.end(), others.begin(), others.end(),
                      std::back_inserter(left), std::less<>());
  return left;
}

template <typename Predicate>
Ranks Where(const Ranks& ranks, const Predicate& predicate) {
  Ranks found;
  std::copy_if(ranks.begin(), ranks.end(), std::back_inserter(found), predicate);
  return found;
}

struct CommunicatorFacts {
  const CommunicatorView* view;
  int64_t now_ns;

  Ranks live;
  // Live ranks whose last call is a collective whose launch has not been reported for half of the
  // hang threshold.
  Ranks unreported;

  // Comparison of the live ranks' calls; empty if they cannot be compared.
  AbandonedCalls abandoned;                   // not included in `calls`
  CallsKnown calls_known = CallsKnown::kYes;  // kYes, or why calls cannot be compared
  std::vector<Calls> calls;                   // of live[i]
  std::size_t most = 0;                       // index of the rank with the most calls
  Calls least;                                // calls that all ranks have made
  bool is_mismatched = false;                 // some rank made a call that calls[most] lacks
  bool is_quiet = true;  // no launch and no unreported call within the last second
  Ranks behind;          // ranks with fewer calls than live[most]
  Ranks owing;           // ranks of `behind` that are idle or in exit()
  Calls owed;            // of each kind, the most calls that a rank of `owing` lacks

  Ranks ended_owing;  // ended ranks that have not made a call that another rank has made

  ReplayFacts replays;  // if calls were captured
  WorkFacts work;       // if calls were captured

  bool are_all_live() const { return static_cast<int32_t>(live.size()) >= view->nranks; }
  // True if all ranks are live or have ended.
  bool are_all_seen() const { return static_cast<int32_t>(view->ranks.size()) >= view->nranks; }
  bool HasCalledAll(const RankView& rank) const { return !Contains(behind, &rank); }
  const Calls& CallsOf(const RankView& rank) const;
  // True if the other ranks have made all calls of this rank, so that it waits for no call of
  // theirs.
  bool IsFurthestBehind(const RankView& rank) const;
};

CommunicatorFacts GatherFacts(const CommunicatorView& view, int64_t now_ns);

// Returns the time of the communicator's last call, for a rank with an unreported launch; 0: not
// known.
int64_t UnreportedSince(const CommunicatorView& view, const RankView& rank);

// True if live ranks have launches in flight, and none has begun on its GPU, so that no rank blocks
// another here.
bool IsBehindOwnWork(const CommunicatorFacts& facts);

// Returns the ranks of `behind` whose activity is unknown, without stopped ones and `owing`.
Ranks BehindUnseen(const CommunicatorFacts& facts);

// True if the ranks that owe a call are known to block the others. Not known where Sends and Recvs
// are used, whose peer may be any rank, unless each other rank is seen and has a call in flight.
bool IsOwedProven(const CommunicatorFacts& facts);

// Returns, for each kind of call, how many a rank of `ranks` lacks at most.
Calls CallsOwedBy(const CommunicatorFacts& facts, const Ranks& ranks);

// True if each launch of each rank, except collectives, is one whole exchange: a Send to and a Recv
// from every other rank, with or without itself. The n-th launch is then the same exchange on all
// ranks, and no rank leaves it before the last one has arrived. Stays false once a rank has split
// an exchange or made only a part of it, because its counts no longer match.
bool AreLaunchesExchanges(const CommunicatorView& view);

}  // namespace nccl_pulse

#endif  // EXPORTER_DIAGNOSIS_FACTS_COMMUNICATOR_FACTS_H_
