// Member describes what one rank was last known to do in one communicator. The graph of waits
// (waits/graph.h) is built from these facts.
//
// Ended and stopped processes are described as of their end, or the last poll of their background
// thread. So a rank that was killed while it waited still waits here.
//
// Thread: any, no state. Points into the communicators' views (rank_view.h).
#ifndef EXPORTER_DIAGNOSIS_FACTS_MEMBER_H_
#define EXPORTER_DIAGNOSIS_FACTS_MEMBER_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "exporter/diagnosis/facts/communicator_facts.h"
#include "exporter/diagnosis/facts/rank_view.h"

namespace nccl_pulse {

enum class Doing : uint8_t {
  kIdle,        // all of its launches are complete
  kInside,      // a launch is in flight that the GPU has begun (`is_begun`) or may have
  kNotBegun,    // a launch is in flight that the GPU has not begun
  kUnreported,  // NCCL hasn't reported the launch of its last call
  kUnknown,     // see RankActivity::reason
};

struct Member {
  const RankView* rank = nullptr;
  Doing doing = Doing::kUnknown;
  bool is_begun = false;    // kInside: the GPU is known to have begun
  int64_t launched_ns = 0;  // oldest launch in flight; 0: none
  int64_t since_ns = 0;     // last progress here, or begin of the stalled work; 0: not known
  uint64_t called = 0;      // collectives, without abandoned ones; launches if `counts_launches`
  uint64_t in_flight = 0;   // launches
  // Number of the collective or launch that the GPU executes or reaches next; 0: none, or unknown.
  // Exact for launches, and if the ring of last calls has it; else counted back from `called`.
  uint64_t front = 0;
  bool is_front_exact = false;
  GpuUse gpu_use{};  // use of its GPU since its work stopped, if NVML was asked

  bool is_live() const { return rank->state == RankView::State::kLive; }
  bool is_in_flight() const { return doing == Doing::kInside || doing == Doing::kNotBegun; }
};

// An event up to this long after the begin of a wait can be its cause, because counters and clocks
// lag.
inline constexpr int64_t kCauseSlackNs = 5000000000;
// A call in flight for this long before the end of a process, or before an abort, was waiting.
// Shorter waits are usual in a step.
inline constexpr int64_t kWaitedNs = 2000000000;
// An endpoint notes an end within milliseconds, so the order of ends on one host is known. Several
// hosts have different clocks, which are assumed to differ by less than kOtherHostNs.
inline constexpr int64_t kSameHostNs = 50000000, kOtherHostNs = 1000000000;
// Returns how far apart ends of `a` and `b` must be for their order to be known.
int64_t ClockSlackNs(const ProcessSnapshot& a, const ProcessSnapshot& b);

// `counts_launches`: counts launches instead of collectives. Set if each launch exchanges data with
// every other rank (AreLaunchesExchanges), so that the n-th launch is the same on all ranks.
Member MemberOf(const CommunicatorFacts& facts, const RankView& rank, bool counts_launches);

// Returns the operation of a collective, by the ring of last calls. Returns "" if it isn't known.
std::string OpOf(const Member& member, uint64_t number);

// Returns the operation that the GPU is in, or the last call's if that isn't known; "": not known.
std::string OpOfWait(const Member& member);

// True if the collective at `front` is known to be incomplete. Otherwise the GPU may have passed
// it: with several launches in flight, earlier ones may complete unnoticed until the last one does.
bool IsAtFront(const Member& member);

// The first event (end, stop, driver error) after which the process or its GPU can do nothing more.
struct LastEvent {
  enum class Kind : uint8_t { kFailed, kGone, kStopped };
  Kind kind{};
  int64_t at_ns = 0;
};
std::optional<LastEvent> LastEventOf(const RankView& rank);
// True if the rank's thread was last seen inside NCCL: it had called, and not launched (so it is
// not Doing::kInside).
bool IsInsideNccl(const Member& member);
// True if the rank had been waiting for kWaitedNs when this happened.
bool HadWaited(const Member& member, int64_t event_ns);

}  // namespace nccl_pulse

#endif  // EXPORTER_DIAGNOSIS_FACTS_MEMBER_H_
