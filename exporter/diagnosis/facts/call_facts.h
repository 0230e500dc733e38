// What the facts about one communicator prove, and what they leave open: each function answers one
// question of the graph of waits (waits/arrows.h) or of its sentences.
//
// Thread: any, no state.
#ifndef EXPORTER_DIAGNOSIS_FACTS_CALL_FACTS_H_
#define EXPORTER_DIAGNOSIS_FACTS_CALL_FACTS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "exporter/diagnosis/facts/call_counts.h"
#include "exporter/diagnosis/facts/communicator_facts.h"

namespace nccl_pulse {

// Returns what all waiting ranks called last, when that is one operation; else "".
std::string LastCalled(const Ranks& waiting);

// Every launch of the ranks here is known not to have begun: none holds up another, or is held up.
bool IsBehindOwnWork(const CommunicatorFacts& facts);

// What idle ranks have not called is all among the launches that have not begun. A call that is not
// reported may have begun before them.
bool AreOwedLaunched(const CommunicatorFacts& facts);

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

// Why it is not known whether a rank has work in flight: with what its process does, if that is why.
std::string WhyUnseen(const RankView& rank);

}  // namespace nccl_pulse

#endif  // EXPORTER_DIAGNOSIS_FACTS_CALL_FACTS_H_
