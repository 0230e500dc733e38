// DiagnosisResult holds the findings of the diagnosis (diagnosis.h), as plain values for pages.
#ifndef EXPORTER_DIAGNOSIS_DIAGNOSIS_RESULT_H_
#define EXPORTER_DIAGNOSIS_DIAGNOSIS_RESULT_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "exporter/diagnosis/verdict.h"

namespace nccl_pulse {

// A rank in a circle: others wait for it on this communicator, while it waits on the next one.
struct CircleStep {
  uint64_t comm_id = 0;
  int32_t rank = 0;
};

// The position of a stalled replay of a CUDA graph: it has passed the communicator's first `before`
// captured calls, and has not passed call number `until`.
struct ReplayPosition {
  uint32_t graph = 0;  // number among the graphs with calls of this communicator; 0: no replay
  uint32_t before = 0, until = 0;
  uint32_t calls = 0;  // captured calls in total
};

struct Hang {
  HangVerdict verdict{};
  // Number of the cause, unique within a result. Communicators whose ranks wait directly for one
  // cause share it. -1: they wait for a rank that waits in another communicator, or it isn't known.
  int finding = -1;
  int64_t since_realtime_ns = 0;  // last progress, or launch of the stalled work
  std::string op;                 // operation in which ranks wait; "": not known
  // The call that is missing, for kRankNotCalled: "AllReduce #106 (up to 64KiB)". "": not known,
  // or calls of several kinds.
  std::string missing_call;
  Situation situation{};  // a fact that changes the sentence (verdict.h)
  // For kBeingMade: the suspects are not in the new communicator yet, so an older one with the same
  // ranks names them: its index in the result.
  std::optional<std::size_t> suspects_seen_in;
  std::vector<int32_t> suspects;  // ranks, in order; empty if none can be named
  std::vector<int32_t> waiting;   // ranks, in order
  std::string text;               // one or two sentences for a person
  std::string first_step;         // next step (verdict.h)
  // The shortest of the waiting ranks' longest earlier waits in this kind of call that ended with
  // progress. 0: a rank had none, or it isn't known. A hang is usual if the present wait is at most
  // kUsualFactor times as long (IsUsual), or if the suspects' wait elsewhere is usual.
  uint64_t longest_wait_before_ns = 0;
  bool is_usual = false;
  std::vector<CircleStep> circle;  // of kCircularWait
  ReplayPosition replay{};         // of the waiting ranks, if they are in a replay
};

// The ranks have launched, but no GPU has begun the launch: each is behind earlier work of its own
// GPU, whose wait is not visible. After kQueuedFactor times the threshold this is a hang
// (waits/arrows.h). If the earlier work is NCCL's, the hang is reported there.
struct Queued {
  int64_t since_realtime_ns = 0;
  std::string op;
  std::vector<int32_t> ranks;
  std::string text;
};

struct Straggler {
  int32_t rank = 0;
  double seconds_per_second = 0;  // time that its peers wait for it
  double mean_seconds = 0;        // wait per call
  double late_share = 0;          // share of the late matched calls in which it arrived last
  uint64_t matched_calls = 0;     // number of compared calls
  std::string text;
  std::string first_step{};
  // Set if all ranks of a host are late: its name. ", " between hosts late together or by turns.
  std::string host{};
  std::vector<int32_t> ranks{};  // all late ranks; `rank` is the first of them
  // For each of `ranks`, its part of `seconds_per_second`; if `host` is set, the part of its host.
  std::vector<double> parts{};
  // The `ranks` that are late only because they wait in another communicator (job_stragglers.h).
  // They aren't named.
  std::vector<int32_t> excused{};
  std::string lateness{};      // text without the rank's name; "" for a host
  int64_t window_seconds = 0;  // length of the window of `seconds_per_second`
};

struct LateRank {
  int32_t rank = 0;
  double seconds_per_second = 0;  // time that its peers wait for it
};

struct RankLoss {
  int32_t rank = 0;
  double seconds = 0;         // nccl_straggler_seconds_total
  std::string static_labels;  // NCCL_PULSE_LABELS of its process
};

struct CommunicatorDiagnosis {
  uint64_t comm_id = 0;
  uint32_t number = 0;  // among communicators with this ID (same_ids.h)
  std::optional<Hang> hang;
  std::optional<Queued> queued;  // never together with a hang
  std::string note;              // sentence about a possible hang; "": none
  std::optional<Straggler> straggler;
  bool has_named_straggler() const {
    return straggler && straggler->excused.size() < straggler->ranks.size();
  }
  // The rank that arrives last at the majority of the late calls, if too few calls are known to
  // exclude chance. Never together with a straggler.
  std::optional<LateRank> perhaps_late;
  // Share of the last `window_seconds` that ranks wait for each other, if no straggler is named.
  double waited_share = 0;
  int64_t window_seconds = 0;
  std::vector<RankLoss> losses;  // empty if ranks cannot be compared
};

using DiagnosisResult = std::vector<CommunicatorDiagnosis>;  // in the order of GroupByCommunicator

}  // namespace nccl_pulse

#endif  // EXPORTER_DIAGNOSIS_DIAGNOSIS_RESULT_H_
