// A verdict while it is being found: who is suspected, of what, and who waits.
//
// Thread: one.
#ifndef EXPORTER_DIAGNOSIS_VERDICT_DRAFT_H_
#define EXPORTER_DIAGNOSIS_VERDICT_DRAFT_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "exporter/diagnosis/call_counts.h"
#include "exporter/diagnosis/call_mismatch.h"
#include "exporter/diagnosis/communicator_facts.h"
#include "exporter/diagnosis/hang_finding.h"

namespace nccl_pulse {

// What the facts about one communicator prove, and what they leave open. Each function answers one
// question of the verdict (hang_verdict.h).

// Returns what all waiting ranks called last, when that is one operation; else "".
std::string LastCalled(const Ranks& waiting);

// Says whether others may wait for a stopped rank. Not if it has called and launched all that the others
// have, and then was stopped: by a debugger, say, that is to show where it waits.
bool MayHoldUp(const CommunicatorFacts& facts, const RankView& rank);

// Of ranks whose driver answers with an error, the first ones, without those to which the failure of
// another GPU may have come over a link.
Ranks FirstFailed(const Ranks& failed);

// Every launch of the ranks here is known not to have begun: none holds up another, or is held up.
bool IsBehindOwnWork(const CommunicatorFacts& facts);

// What idle ranks have not called is all among the launches that have not begun. A call that is not
// reported may have begun before them.
bool AreOwedLaunched(const CommunicatorFacts& facts);

// Says whether the GPU of one of the ranks is known to have come to all that it has launched.
bool IsAnyKnownToHaveBegun(const Ranks& ranks);

// Ranks that have called less, and of which it is not known whether they wait.
Ranks BehindUnseen(const CommunicatorFacts& facts);

// Says whether idle ranks are known to hold up the others. Behind a Send or Recv in flight a rank may
// wait for another one than the one that owes a collective, unless nobody else is left.
bool IsOwedProven(const CommunicatorFacts& facts);

// Ranks that have called least. A rank whose own calls stand unreported is named only if no call of
// another rank can be what it waits for.
Ranks NamedByCounts(const CommunicatorFacts& facts);

// The most that any of `ranks` has not called and the rank ahead has.
Calls CallsOwedBy(const CommunicatorFacts& facts, const Ranks& ranks);

// Says how often each of `ranks` has called the kinds of `owed`, as tables count it. Kinds that they have
// not called, or not equally often, or captured, are left out.
Calls CallsBefore(const Calls& owed, const Ranks& ranks);
// The call that all of `ranks` made last, with its number, if it is of an operation that they owe:
// then it might be taken for what they have not called. Else nothing.
Calls LastOfOwed(const Calls& owed, const Ranks& ranks);

// One rank alone has called more, in operations that a rank may leave before the others come: it
// may be the root, and have left.
bool MayAllHaveLeft(const CommunicatorFacts& facts, const Ranks& behind);

// Says whether one of the waiting ranks may wait in a Send or Recv.
bool IsPointToPointPossible(const Ranks& waiting);

inline constexpr std::size_t kMostUnseen = 8;
// Ranks of which nothing has been seen here, `most` of them at most.
std::vector<int32_t> UnseenRanks(const CommunicatorFacts& facts, std::size_t most);

class VerdictDraft {
 public:
  // `facts` must outlive this object.
  explicit VerdictDraft(const CommunicatorFacts& facts);

  // The finding itself; the functions below set more than one field of it.
  HangFinding finding;

  // `waiting` wait; since(rank): when one of them made progress last.
  template <typename Since>
  void SetWaiting(const Ranks& waiting, const Since& since) {
    finding.waiting = waiting;
    finding.since_realtime_ns = INT64_MAX;
    for (const RankView* rank : waiting) {
      finding.since_realtime_ns = std::min(finding.since_realtime_ns, since(*rank));
    }
    finding.op = LastCalled(waiting);
  }

  // Suspects do not wait: the others wait for them.
  void Say(HangVerdict verdict, HangDetail detail, const Ranks& suspects);
  void SayUnknown(HangDetail detail) { Say(HangVerdict::kUnknown, detail, {}); }
  // Suspects those outside the largest side; all if no side is the largest.
  void SayMismatch(Mismatch mismatch);
  // Idle ranks have not called what others have. They are suspected, or named besides.
  void SayOwing();
  void AddOwing();
  // Some have called less, and what they have in flight cannot be seen: names those of them that
  // are suspected all the same.
  void SayBehindUnseen();

 private:
  const CommunicatorFacts& facts_;
};

}  // namespace nccl_pulse

#endif  // EXPORTER_DIAGNOSIS_VERDICT_DRAFT_H_
