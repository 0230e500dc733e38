// What the diagnosis (diagnosis.h) says, as plain values for pages.
#ifndef EXPORTER_DIAGNOSIS_DIAGNOSIS_RESULT_H_
#define EXPORTER_DIAGNOSIS_DIAGNOSIS_RESULT_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "exporter/diagnosis/verdict.h"

namespace nccl_pulse {

// A rank in a circle: it is missing on this communicator, and has work in flight on the next one.
struct CircleStep {
  uint64_t comm_id = 0;
  int32_t rank = 0;
};

// Where a replay of a CUDA graph stands: among the calls of this communicator that were captured
// into it, behind the first `before` of them and not behind number `until`.
struct ReplayPlace {
  uint32_t graph = 0;  // its number among the graphs with calls of this communicator; 0: no replay
  uint32_t before = 0, until = 0;
  uint32_t calls = 0;  // in all
};

struct Hang {
  HangVerdict verdict{};
  // Number of the finding of its job, among all of a result. Communicators whose ranks wait for the same
  // root have the same; -1: its ranks wait for ranks that wait elsewhere, or nobody is to be named here.
  int finding = -1;
  int64_t since_realtime_ns = 0;  // the last progress, or the launch that makes none
  std::string op;                 // that is waited in, "" when not known
  // kRankNotCalled has "AllReduce #106 (up to 64KiB)"; "" when it is not known, or the calls are of
  // several kinds.
  std::string missing_call;
  Situation situation{};
  // kBeingMade has it if a communicator has the same ranks: its place in the result.
  std::optional<std::size_t> absent_in;
  std::vector<int32_t> suspects;  // ranks, in order; none when none can be named
  std::vector<int32_t> waiting;   // ranks, in order
  std::string text;               // for a person: one or two sentences
  std::string first_step;         // what to do first (verdict.h)
  // The longest that each of the waiting ranks has waited in this operation before and then gone
  // on; 0: never, or not known. Usual: that measure covers the present wait, or the suspects wait
  // elsewhere and that is usual.
  uint64_t longest_wait_before_ns = 0;
  bool is_usual = false;
  std::vector<CircleStep> circle;  // of kCircularWait
  ReplayPlace replay{};            // where those that wait stand, if that is within one
};

// The ranks here have launched, and none of their GPUs has begun it: each waits for earlier work of
// its own GPU. What that waits for is not known. After a while it is a hang (waits/arrows.h),
// unless that work is NCCL's: then the hang is where that stands.
struct Queued {
  int64_t since_realtime_ns = 0;
  std::string op;
  std::vector<int32_t> ranks;
  std::string text;
};

struct Straggler {
  int32_t rank = 0;
  double seconds_per_second = 0;  // that its peers wait for it
  double mean_seconds = 0;        // per call
  double late_share =
      0;  // of the matched calls into which somebody came late, those in which it did
  uint64_t matched_calls = 0;  // that this rests on
  std::string text;
  std::string first_step{};
  // Set if all ranks of a host are late: its name, and they; `rank` is the first.
  std::string host{};
  std::vector<int32_t> ranks{};
  // It waits for another one itself, in another communicator (job_stragglers.h): it is not named.
  bool is_excused = false;
  std::string lateness{};  // the text of one rank, without its name; "": a host is late
};

struct LateRank {
  int32_t rank = 0;
  double seconds_per_second = 0;  // that its peers wait for it
};

struct RankLoss {
  int32_t rank = 0;
  double seconds = 0;         // nccl_straggler_seconds_total
  std::string static_labels;  // the user's, of its process
};

struct CommunicatorDiagnosis {
  uint64_t comm_id = 0;
  uint32_t number = 0;  // among those with this id (same_ids.h)
  std::optional<Hang> hang;
  std::optional<Queued> queued;  // never beside a hang
  std::string note;              // a sentence: what may be a hang, or nothing; "": none
  std::optional<Straggler> straggler;
  bool has_named_straggler() const { return straggler && !straggler->is_excused; }
  // Who comes last into most of the late calls, where too few are known to say that this is no
  // chance. Never beside a straggler.
  std::optional<LateRank> perhaps_late;
  std::vector<RankLoss> losses;  // empty where ranks cannot be compared
};

using DiagnosisResult = std::vector<CommunicatorDiagnosis>;  // in the order of GroupByCommunicator

}  // namespace nccl_pulse

#endif  // EXPORTER_DIAGNOSIS_DIAGNOSIS_RESULT_H_
