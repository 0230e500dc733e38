// What the ranks of one communicator are known to have done, sorted. The graph of waits
// (waits/arrows.h) rests on these facts alone. Nobody is suspected here.
//
// Thread: any, no state. It points into the view.
#ifndef EXPORTER_DIAGNOSIS_FACTS_COMMUNICATOR_FACTS_H_
#define EXPORTER_DIAGNOSIS_FACTS_COMMUNICATOR_FACTS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

#include "exporter/diagnosis/facts/abandoned_calls.h"
#include "exporter/diagnosis/facts/call_counts.h"
#include "exporter/diagnosis/facts/rank_view.h"
#include "exporter/diagnosis/facts/work_facts.h"

namespace nccl_pulse {

// This tells how far the ranks of one communicator have come in the replays of their CUDA graphs.
//
// Stamps count on each rank's GPU how often the stamps of its graphs were passed (docs/cuda-graphs.md).
// Ranks that captured the same graphs replay them in the same order. So of two ranks that one is
// behind that has begun fewer replays, or begun as many and passed fewer stamps of the last one. A
// replay that waits behind another has passed no stamp, and changes nothing.
//
//   what was captured lets no rank leave before all have come (WaitsForAll), so
//   rank B is behind rank A   ==>   A has begun what it cannot end without B, and waits
//                                   B has called and launched its part of all that A has finished:
//                                   its GPU has not come to the stamp that A has passed
//
// Nobody waits for A. Where all are alike, those with a replay between two stamps stand in it, and
// who holds it up is not known.

// Why ranks are not compared.
enum class ReplaysKnown : uint8_t {
  kYes,
  kNotFollowed,  // on a rank here: no stamps, or no background thread that reads them
  kDiffer,       // the ranks have not captured alike, or called differently beside the graphs
  kMayLeave,     // operations were captured that a rank may leave before the others come
};

struct ReplayFacts {
  ReplaysKnown known = ReplaysKnown::kNotFollowed;
  // All empty unless they are known. Of the live ranks:
  Ranks behind;                     // furthest behind; empty when all are alike
  const RankView* ahead = nullptr;  // one that is furthest ahead
  bool are_all_within = false;      // each has a replay in flight, at the same place
};

// `live`: in the order of their view.
ReplayFacts CompareReplays(const Ranks& live);

// Lists of ranks are in the order of their view, so in that of their addresses.
inline bool Contains(const Ranks& ranks, const RankView* rank) {
  return std::binary_search(ranks.begin(), ranks.end(), rank, std::less<>());
}

// Those of `ranks` that are not among `others`.
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
  int64_t now_ns, hang_after_ns;

  // Since when the first rank has had work in flight without progress, if for hang_after; INT64_MAX: none.
  int64_t stuck_since_ns = INT64_MAX;

  Ranks live;
  Ranks failed;  // the driver of their GPU answers with an error, live or gone
  // These are of the live ones.
  Ranks stopped;        // their process is not running
  Ranks stopped_later;  // nor is theirs, but it was when the others already waited
  Ranks inside;         // IsInsideNccl, for that long
  Ranks unreported;  // their last call was a collective whose launch is not reported, for that long

  // It tells how the calls of the live ranks compare; empty when they cannot be compared.
  AbandonedCalls abandoned;                   // which are not among the calls
  CallsKnown calls_known = CallsKnown::kYes;  // else why not
  std::vector<Calls> calls;                   // of live[i]
  std::size_t most = 0;                       // index of the one that has called most
  Calls least;                                // what all have called
  bool is_mismatched = false;                 // not all are beginnings of that one's
  bool is_quiet = true;  // no rank has launched, or called unreported, for a moment
  Ranks behind;          // have called less than that one
  // Of the live ranks those that are known to be idle, or to make no further call, and have not called
  // what another rank has, or had when it ended.
  Ranks owing;
  Calls owed;  // by those

  // Of the ranks that have ended, which make no further call:
  Ranks ended_owing;  // have not called what another rank has

  ReplayFacts replays;  // where calls were captured
  WorkFacts work;       // likewise

  bool are_all_live() const { return static_cast<int32_t>(live.size()) >= view->nranks; }
  // Or have ended.
  bool are_all_seen() const { return static_cast<int32_t>(view->ranks.size()) >= view->nranks; }
  bool HasCalledAll(const RankView& rank) const { return !Contains(behind, &rank); }
  const Calls& CallsOf(const RankView& rank) const;
  // All that the rank has called the other ranks have called, too: it waits for no call of theirs.
  bool IsFurthestBehind(const RankView& rank) const;
};

CommunicatorFacts GatherFacts(const CommunicatorView& view, int64_t hang_after_ns, int64_t now_ns);

// Since when the calls of an `unreported` one stand.
int64_t UnreportedSince(const CommunicatorView& view, const RankView& rank);

// Returns what all waiting ranks called last, when that is one operation; else "".
std::string LastCalled(const Ranks& waiting);

// Every launch of the ranks here is known not to have begun: none holds up another, or is held up.
bool IsBehindOwnWork(const CommunicatorFacts& facts);

// Ranks that have called less, and of which it is not known whether they wait.
Ranks BehindUnseen(const CommunicatorFacts& facts);

// Says whether idle ranks are known to hold up the others. Behind a Send or Recv in flight a rank may
// wait for another one than the one that owes a collective, unless nobody else is left.
bool IsOwedProven(const CommunicatorFacts& facts);

// The most that any of `ranks` has not called and the rank ahead has.
Calls CallsOwedBy(const CommunicatorFacts& facts, const Ranks& ranks);

}  // namespace nccl_pulse

#endif  // EXPORTER_DIAGNOSIS_FACTS_COMMUNICATOR_FACTS_H_
