// Every verdict on a communicator that makes no progress, as data: its name for programs, what it
// means, what is said of a job, and what to do first. Metrics, JSON, tables,
// the page, `pulse diagnose`, `pulse watch`, alerts and docs/metrics.md take them from here.
//
// Thread: any; constant data.
#ifndef EXPORTER_DIAGNOSIS_VERDICT_H_
#define EXPORTER_DIAGNOSIS_VERDICT_H_

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>

#include "metrics/snapshot.h"

namespace nccl_pulse {

enum class HangVerdict : uint8_t {
  kRankNotCalled,
  kRankNotLaunched,
  kRankNotBegun,
  kMismatched,
  kBlockedElsewhere,
  kCircularWait,
  kProcessGone,
  kProcessStopped,
  kDriverError,
  kRankNotSeen,
  kPointToPoint,
  kNoProgress,
  kUnknown,
};

// A situation is known beside a verdict, where it changes what is said or done.
enum class Situation : uint8_t {
  kPlain,
  kFinalized,    // the suspects have finalized the communicator
  kExiting,      // the suspect's process is in exit()
  kBeingMade,    // the others make the communicator
  kQueued,       // those that wait are behind earlier work of their own GPUs
  kInReplay,     // they wait in a replay of a CUDA graph
  kInsideNccl,   // they have launched nothing
  kInGraphs,     // counters of finished work stand; where in a graph is not known
  kOfDumps,      // files of PyTorch's Flight Recorder are read, no endpoints
  kFromOutside,  // the suspects run without the plugin
};

// In these texts {has} and {is} agree with the ranks that are named. {call} and {op} are what
// the others wait in, {comm} is a communicator. {pid}, {place}, {on} and {gpu} tell where the first rank
// that is named runs. Null: as in the row of the verdict alone.
struct VerdictWords {
  const char* named;   // follows the ranks
  const char* nobody;  // where none can be named
  const char* first;   // what to do first
  const char* unseen;  // the same where nothing is known of the process
};

struct VerdictEntry {
  HangVerdict value;
  const char* name;
  const char* meaning;
  VerdictWords words;
};

inline constexpr char kStackFirst[] = "py-spy dump --pid {pid}{place}: what its program does";
inline constexpr char kNobodyNamed[] = "{comm} makes no progress";

inline constexpr VerdictEntry kVerdicts[] = {
    {HangVerdict::kRankNotCalled,
     "rank_not_called",
     "a rank has not called what the others have called",
     {"{has} not called {call}", kNobodyNamed, kStackFirst, nullptr}},
    {HangVerdict::kRankNotLaunched,
     "rank_not_launched",
     "a call has launched nothing",
     {"{has} called {op} and launched nothing", kNobodyNamed,
      "gdb -p {pid} -batch -ex 'thread apply all bt'{place}: whether the call is still in NCCL",
      nullptr}},
    {HangVerdict::kRankNotBegun,
     "rank_not_begun",
     "a GPU has not begun what was launched",
     {"{has} launched {op}, but the GPU has not begun it", kNobodyNamed,
      "nvidia-smi and dmesg (Xid){on}{gpu}: which kernel before it does not end", nullptr}},
    {HangVerdict::kMismatched,
     "mismatched_operations",
     "ranks have called different operations",
     {"{has} called something other than the others ({op})", kNobodyNamed, kStackFirst, nullptr}},
    {HangVerdict::kBlockedElsewhere,
     "blocked_elsewhere",
     "the missing rank may wait in another communicator",
     {"", kNobodyNamed, "pulse status{on}: the communicator that the sentence names", nullptr}},
    {HangVerdict::kCircularWait,
     "circular_wait",
     "ranks seem to wait for each other in a circle",
     {"seem to wait for each other in a circle", kNobodyNamed, kStackFirst, nullptr}},
    {HangVerdict::kProcessGone,
     "process_gone",
     "a process has ended",
     {"ended without finalizing its communicators", kNobodyNamed,
      "its log, and dmesg{on}: why it ended", nullptr}},
    {HangVerdict::kProcessStopped,
     "process_stopped",
     "a process does nothing",
     {"{has} done nothing", kNobodyNamed,
      "cat /proc/{pid}/status /proc/{pid}/stack{place}: what holds it", nullptr}},
    {HangVerdict::kDriverError,
     "driver_error",
     "a GPU can do no more work for its process",
     {"{has} a GPU whose driver reports an error without recovery", kNobodyNamed,
      "nvidia-smi -q and dmesg (Xid){on}{gpu}, and dcgm: what happened to it; then end the process",
      nullptr}},
    {HangVerdict::kRankNotSeen,
     "rank_not_seen",
     "a rank is not reported",
     {"{is} not seen at any endpoint that answered", kNobodyNamed,
      "whether its process is alive, and its log{on}",
      "whether its process and its node are alive, and which endpoint should know it"}},
    {HangVerdict::kPointToPoint,
     "point_to_point",
     "Send and Recv do not end",
     {"", "ranks of {comm} wait in Send or Recv",
      "the stacks of the ranks that wait, and of those that have nothing in flight", nullptr}},
    {HangVerdict::kNoProgress,
     "no_progress",
     "all ranks have called, and nothing completes",
     {"{has} not completed {op}",
      "all ranks of {comm} have called {op}, and none of it has completed",
      "nvidia-smi, dmesg (Xid) and the network's link errors{on}",
      "the network and the GPUs of its hosts: link errors, dmesg (Xid)"}},
    {HangVerdict::kUnknown,
     "unknown",
     "what would decide it cannot be seen",
     {"", kNobodyNamed, "pulse status on the hosts that wait: what cannot be seen, and why",
      nullptr}},
};
inline constexpr std::size_t kVerdictCount = std::size(kVerdicts);

struct SituationEntry {
  HangVerdict verdict;
  Situation situation;
  VerdictWords words;
};

inline constexpr SituationEntry kSituations[] = {
    {HangVerdict::kRankNotCalled,
     Situation::kFinalized,
     {"{has} finalized or aborted a communicator in which others wait", nullptr, nullptr, nullptr}},
    {HangVerdict::kRankNotCalled,
     Situation::kExiting,
     {"{is} in exit(), and {has} not called {call}", nullptr,
      "gdb -p {pid} -batch -ex 'thread apply all bt'{place}: what keeps it from ending", nullptr}},
    {HangVerdict::kRankNotCalled,
     Situation::kFromOutside,
     {"{has} launched less than the others, as NCCL's RAS or NVML reports", nullptr, nullptr,
      nullptr}},
    {HangVerdict::kRankNotBegun,
     Situation::kInReplay,
     {"{is} behind the others in the replays of CUDA graphs", nullptr,
      "py-spy dump --pid {pid}{place}: whether its program launches the replay; then nvidia-smi "
      "and "
      "dmesg (Xid)",
      nullptr}},
    {HangVerdict::kRankNotBegun,
     Situation::kInGraphs,
     {"{has} a GPU that runs nothing while the others are busy in CUDA graphs", nullptr,
      kStackFirst, nullptr}},
    {HangVerdict::kRankNotSeen,
     Situation::kBeingMade,
     {"{has} not joined {comm}, which others are creating", nullptr, kStackFirst, nullptr}},
    {HangVerdict::kRankNotSeen,
     Situation::kOfDumps,
     {"{has} no dump that could be used", nullptr, nullptr, nullptr}},
    {HangVerdict::kPointToPoint,
     Situation::kOfDumps,
     {nullptr, "both ranks of {comm} wait in Send or Recv", nullptr, nullptr}},
    {HangVerdict::kNoProgress,
     Situation::kInReplay,
     {nullptr,
      "all ranks of {comm} are in the same part of a CUDA graph's replay, and it makes no "
      "progress",
      nullptr, nullptr}},
    {HangVerdict::kNoProgress,
     Situation::kInGraphs,
     {nullptr, "all GPUs of {comm} are busy in CUDA graphs, and no collective is seen to finish",
      nullptr, nullptr}},
    {HangVerdict::kNoProgress,
     Situation::kInsideNccl,
     {nullptr, "all ranks of {comm} have called {op} and are inside NCCL",
      "NCCL's log (NCCL_DEBUG=INFO) and the network between the hosts: which connection is not "
      "made",
      "NCCL's log (NCCL_DEBUG=INFO) and the network between the hosts: which connection is not "
      "made"}},
    {HangVerdict::kNoProgress,
     Situation::kQueued,
     {nullptr, "the GPUs of {comm} are behind earlier work of their own, which has not ended",
      "nvidia-smi and py-spy dump on its hosts: which kernels outside of NCCL run there "
      "(DeepEP, NVSHMEM, a custom all-reduce)",
      "nvidia-smi and py-spy dump on its hosts: which kernels outside of NCCL run there "
      "(DeepEP, NVSHMEM, a custom all-reduce)"}},
};

constexpr bool AreVerdictsInOrder() {
  for (std::size_t i = 0; i < kVerdictCount; ++i) {
    if (static_cast<std::size_t>(kVerdicts[i].value) != i) return false;
  }
  return kVerdictCount == static_cast<std::size_t>(HangVerdict::kUnknown) + 1;
}
static_assert(AreVerdictsInOrder(), "a row for each verdict, in their order");

constexpr const VerdictEntry& EntryOf(HangVerdict verdict) {
  return kVerdicts[static_cast<std::size_t>(verdict)];
}
constexpr const char* HangVerdictName(HangVerdict verdict) { return EntryOf(verdict).name; }

const char* WordsOf(HangVerdict verdict, Situation situation, const char* VerdictWords::*which);

// "py-spy dump --pid 103 on node-1: what its program does". Both are null where no rank is named or
// nothing is known of its process.
std::string FirstStep(HangVerdict verdict, Situation situation, const ProcessSnapshot* process,
                      const CommunicatorSnapshot* communicator);
// Says what to do first about a rank that comes late, or about all ranks of a host.
std::string FirstStepOfLate(const ProcessSnapshot* process, bool is_one);
// " on node-1"; "" where that is not known.
std::string OnHost(const ProcessSnapshot* process);

}  // namespace nccl_pulse

#endif  // EXPORTER_DIAGNOSIS_VERDICT_H_
