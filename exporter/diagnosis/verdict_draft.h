// A verdict while it is being found: who is suspected, of what, and who waits.
//
// Thread: one.
#ifndef EXPORTER_DIAGNOSIS_VERDICT_DRAFT_H_
#define EXPORTER_DIAGNOSIS_VERDICT_DRAFT_H_

#include <algorithm>
#include <cstdint>

#include "exporter/diagnosis/call_mismatch.h"
#include "exporter/diagnosis/communicator_facts.h"
#include "exporter/diagnosis/hang_evidence.h"
#include "exporter/diagnosis/hang_finding.h"

namespace nccl_pulse {

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
