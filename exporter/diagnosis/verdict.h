// Verdicts on a communicator that makes no progress, as data: name, meaning, sentence about a job,
// and next step. Metrics, JSON, tables, the page, `pulse diagnose`, `pulse watch` and alerts read
// them from here.
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

// A fact beside a verdict that changes its sentence or its next step.
enum class Situation : uint8_t {
  kPlain,
  kFinalized,    // the suspects have finalized the communicator
  kExiting,      // the suspect's process is in exit()
  kBeingMade,    // the others are creating the communicator
  kQueued,       // waiting ranks are behind earlier work of their own GPUs
  kInReplay,     // waiting ranks are in a replay of a CUDA graph
  kInsideNccl,   // waiting ranks are inside NCCL: they have called, and not launched
  kInGraphs,     // counters of finished work have stalled, at an unknown position in a graph
  kOfDumps,      // the facts come from PyTorch's Flight Recorder, not from endpoints
  kFromOutside,  // the suspects run without the plugin
  kLeftBehind,   // the others have aborted the communicator, and the suspects have not
  kPeerSizes,    // the suspects' Sends and Recvs differ in size
};

// Texts with placeholders. {has} and {is} agree with the number of named ranks. {op} is the
// operation in which the others wait, {call} the missing call or else {op}, {comm} a communicator.
// {idle} says why the named ranks do not run, if the kernel tells. {pid}, {where}, {on} and {gpu}
// locate the first named rank, and {at} is the time of its end. Null: as without a situation.
struct VerdictWords {
  const char* named;   // follows the ranks
  const char* nobody;  // if no rank can be named
  const char* first;   // next step
  const char* unseen;  // next step if nothing is known of the process; null: `first`
  // First sentence about a communicator's ranks. waits/sentences.cc fills in its placeholders, or
  // composes the sentence if this is null.
  const char* sentence = nullptr;
};

struct VerdictEntry {
  HangVerdict value;
  const char* name;
  const char* meaning;
  VerdictWords words;
};

inline constexpr char kStackFirst[] = "py-spy dump --pid {pid}{where}";
inline constexpr char kNobodyNamed[] = "{comm} makes no progress";

inline constexpr VerdictEntry kVerdicts[] = {
    {HangVerdict::kRankNotCalled,
     "rank_not_called",
     "a rank has not made a call that the others have made",
     {"{has} not called {call}", kNobodyNamed, kStackFirst, nullptr}},
    {HangVerdict::kRankNotLaunched,
     "rank_not_launched",
     "a call has launched nothing",
     {"{has} made a call that has launched nothing", kNobodyNamed,
      "gdb -p {pid} -batch -ex 'thread apply all bt'{where} (is the call still in NCCL?)", nullptr,
      "{Who} {has|have} made a call that has launched nothing: {inside}."}},
    {HangVerdict::kRankNotBegun,
     "rank_not_begun",
     "a GPU has not begun its launch",
     {"{has} launched {op}, but the GPU has not begun it", kNobodyNamed,
      "nvidia-smi and dmesg (Xid){on}{gpu} (does an earlier kernel not end?)", nullptr,
      "{Who} {has|have} launched {launched}, but {its GPU has|their GPUs have} not begun it: work "
      "before it on the {stream|streams} has not ended."}},
    {HangVerdict::kMismatched,
     "mismatched_operations",
     "ranks have called different operations",
     {"{has} called something other than the others ({op})", kNobodyNamed, kStackFirst, nullptr}},
    {HangVerdict::kBlockedElsewhere,
     "blocked_elsewhere",
     "the missing rank may wait in another communicator",
     {"", kNobodyNamed, "pulse diagnose with all nodes of the job", nullptr}},
    {HangVerdict::kCircularWait,
     "circular_wait",
     "ranks seem to wait for each other in a circle",
     {"seem to wait for each other in a circle", kNobodyNamed, kStackFirst, nullptr}},
    {HangVerdict::kProcessGone,
     "process_gone",
     "a process has ended",
     {"ended{at} without finalizing its communicators", kNobodyNamed,
      "its log, and dmesg{on} (killed? out of memory?)", nullptr, "{ended}."}},
    {HangVerdict::kProcessStopped,
     "process_stopped",
     "a process does nothing",
     {"{idle}", kNobodyNamed,
      "cat /proc/{pid}/status /proc/{pid}/stack{where} (stopped? a debugger? a driver call?)",
      nullptr}},
    {HangVerdict::kDriverError,
     "driver_error",
     "a GPU's driver reports an error without recovery",
     {"{has} a GPU whose driver reports an error without recovery", kNobodyNamed,
      "nvidia-smi -q and dmesg (Xid){on}{gpu}, then end the process", nullptr}},
    {HangVerdict::kRankNotSeen,
     "rank_not_seen",
     "a rank is not reported",
     {"{is} not seen at any endpoint that answered", kNobodyNamed,
      "cat /proc/{pid}/status /proc/{pid}/stack{where} (gone? stopped? a driver call?), "
      "gdb -p {pid} (in exit()?), and its log",
      "check that its process and node are up, and that it was started with "
      "NCCL_PROFILER_PLUGIN"}},
    {HangVerdict::kPointToPoint,
     "point_to_point",
     "Send and Recv do not end",
     {"", "ranks of {comm} wait in Send or Recv",
      "py-spy dump for the ranks that wait and for idle ranks", nullptr}},
    {HangVerdict::kNoProgress,
     "no_progress",
     "ranks wait in a call, and no rank is known to block it",
     {"{has} not completed {op}", "ranks of {comm} wait in {op}, and nothing completes",
      "check nvidia-smi, dmesg (Xid) and the network's link errors{on}",
      "check the network's link errors and dmesg (Xid) on its hosts"}},
    {HangVerdict::kUnknown,
     "unknown",
     "a deciding fact cannot be observed",
     {"", kNobodyNamed, "pulse status on the hosts that wait (it gives the reason)", nullptr}},
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
     {"{has} finalized or aborted a communicator in which others wait", nullptr, nullptr, nullptr,
      "{Who} {has|have} finalized this communicator."}},
    {HangVerdict::kRankNotCalled,
     Situation::kExiting,
     {"{is} in exit(), and {has} not called {call}", nullptr,
      "gdb -p {pid} -batch -ex 'thread apply all bt'{where} (which thread does not end?)", nullptr,
      "{Who} will make no further call."}},
    {HangVerdict::kRankNotCalled,
     Situation::kFromOutside,
     {"{has} launched less than the others, as NCCL's RAS or NVML reports", nullptr, nullptr,
      nullptr}},
    {HangVerdict::kRankNotCalled,
     Situation::kLeftBehind,
     {"{is} still in a communicator that the others have aborted", nullptr, nullptr, nullptr,
      "{Who} {is|are} still in this communicator. The others have aborted it and gone on."}},
    {HangVerdict::kRankNotBegun,
     Situation::kInReplay,
     {"{is} behind the others in the replays of CUDA graphs", nullptr,
      "py-spy dump --pid {pid}{where} (has it launched the replay?), then nvidia-smi and dmesg "
      "(Xid)",
      nullptr,
      "{Who} {is|are} behind the others in replays of CUDA graphs: {its program has|their programs "
      "have} not launched it, or earlier work of {its GPU has|their GPUs have} not ended."}},
    {HangVerdict::kRankNotBegun,
     Situation::kInGraphs,
     {"{has} a GPU that runs nothing while the others are busy in CUDA graphs", nullptr,
      kStackFirst, nullptr,
      "The {GPU|GPUs} of {who} {runs|run} nothing, while every other GPU is busy and no collective "
      "has finished here since {since}: {its program has|their programs have} not launched what "
      "the others wait for."}},
    {HangVerdict::kMismatched,
     Situation::kPeerSizes,
     {"{has} called a Send and its Recv with different sizes", nullptr, nullptr, nullptr}},
    {HangVerdict::kRankNotSeen,
     Situation::kBeingMade,
     {"{has} not joined {comm}, which others are creating", nullptr, kStackFirst, nullptr}},
    {HangVerdict::kRankNotSeen,
     Situation::kOfDumps,
     {"{has} no dump that could be used", nullptr,
      "check that its process is alive, and read its log{on}", nullptr}},
    {HangVerdict::kPointToPoint,
     Situation::kOfDumps,
     {nullptr, "both ranks of {comm} wait in Send or Recv", nullptr, nullptr}},
    {HangVerdict::kNoProgress,
     Situation::kInReplay,
     {nullptr, "ranks of {comm} are in a replay of a CUDA graph, and it makes no progress", nullptr,
      nullptr,
      "{all} are stalled in a replay of a CUDA graph, {position}. Which of them blocks it is not "
      "known."}},
    {HangVerdict::kNoProgress,
     Situation::kInGraphs,
     {nullptr, "GPUs of {comm} are busy in CUDA graphs, and no collective is seen to finish",
      nullptr, nullptr}},
    {HangVerdict::kNoProgress,
     Situation::kInsideNccl,
     {nullptr, "ranks of {comm} wait inside NCCL in {op}",
      "check NCCL's log (NCCL_DEBUG=INFO) and the network between the hosts",
      "check NCCL's log (NCCL_DEBUG=INFO) and the network between the hosts",
      "{all} have called {op}, and for minutes no rank has launched it: inside NCCL (setting up a "
      "connection, or a group that was not ended). Which ranks block it is not known."}},
    {HangVerdict::kNoProgress,
     Situation::kQueued,
     {nullptr, "GPUs of {comm} are behind earlier work of their own, which has not ended",
      "nvidia-smi and py-spy dump on its hosts (a kernel of DeepEP, NVSHMEM, a custom "
      "all-reduce?)",
      "nvidia-smi and py-spy dump on its hosts (a kernel of DeepEP, NVSHMEM, a custom "
      "all-reduce?)"}},
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

// Returns a step such as "py-spy dump --pid 103 on node-1", to follow "Next: ". `process` and
// `communicator` are null if no rank is named or nothing is known of its process.
std::string FirstStep(HangVerdict verdict, Situation situation, const ProcessSnapshot* process,
                      const CommunicatorSnapshot* communicator);
// Returns the next step for a late rank, or for a host all of whose ranks are late.
std::string FirstStepOfLate(const ProcessSnapshot* process);
// Returns " on node-1", or " where global rank 3 runs" for a dump; "" if the host is not known.
std::string OnHost(const ProcessSnapshot* process);

}  // namespace nccl_pulse

#endif  // EXPORTER_DIAGNOSIS_VERDICT_H_
