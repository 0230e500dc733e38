// What one rank was last known to do in one communicator: the facts that the graph of waits
// (waits/graph.h) is built from.
//
// An ended or stopped process is described as of its end or its last poll, so a rank that was killed
// while it waited still waits here.
//
// Thread: any, no state. Points into the views.
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
  kInside,      // a launch is in flight, and the GPU isn't known to be behind other work
  kNotBegun,    // a launch is in flight that the GPU has not begun
  kUnreported,  // NCCL hasn't reported the launch of its last call
  kUnknown,     // see RankActivity::reason
};

struct Member {
  const RankView* rank = nullptr;
  Doing doing = Doing::kUnknown;
  bool is_begun = false;    // of kInside: known, not assumed
  int64_t launched_ns = 0;  // oldest launch in flight; 0: none
  int64_t since_ns = 0;     // last progress here, or the begin of what makes none; 0: not known
  uint64_t called = 0;      // collectives called, less those that made nothing
  uint64_t in_flight = 0;   // launches
  // Number of the collective that the GPU is in or comes to next; 0: none, or not known. Exact where
  // the ring of last calls tells, otherwise counted back from `called`.
  uint64_t front = 0;
  bool is_front_exact = false;
  GpuUse gpu_use{};  // kernels on its GPU meanwhile, where somebody has asked NVML

  bool is_live() const { return rank->state == RankView::State::kLive; }
  bool is_in_flight() const { return doing == Doing::kInside || doing == Doing::kNotBegun; }
};

// A wait this long before the end of a process or an abort was a wait, not a call that just ran.
// An event this long after a wait began can still be its cause: counters and clocks lag.
inline constexpr int64_t kCauseSlackNs = 5000000000;

// `counts_launches`: each launch of the communicator is one whole exchange (exchange.h), so its
// launches are compared the way collectives are.
Member MemberOf(const CommunicatorFacts& facts, const RankView& rank, bool counts_launches);

// Returns the operation of a collective, by the ring of last calls. "": it isn't known.
std::string OpOf(const Member& member, uint64_t number);

// True if the rank's front is known to be incomplete. Otherwise it may be further: events can tell
// only the end of the last of several launches.
bool IsAtFront(const Member& member);

// The first event after which the process or its GPU can do nothing more.
struct LastEvent {
  enum class Kind : uint8_t { kFailed, kGone, kStopped };
  Kind kind{};
  int64_t at_ns = 0;
};
std::optional<LastEvent> LastEventOf(const RankView& rank);

}  // namespace nccl_pulse

#endif  // EXPORTER_DIAGNOSIS_FACTS_MEMBER_H_
