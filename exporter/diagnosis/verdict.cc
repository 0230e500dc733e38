#include "exporter/diagnosis/verdict.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "exporter/diagnosis/words/words.h"

namespace nccl_pulse {

const char* WordsOf(HangVerdict verdict, Situation situation, const char* VerdictWords::*which) {
  for (const SituationEntry& each : kSituations) {
    if (each.verdict != verdict || each.situation != situation) continue;
    if (each.words.*which != nullptr) return each.words.*which;
  }
  return EntryOf(verdict).words.*which;
}

std::string OnHost(const ProcessSnapshot* process) {
  if (process == nullptr) return "";
  if (process->is_of_dump)
    return absl::StrCat(" where global rank ", process->global_rank, " runs");
  return process->hostname.empty() ? "" : absl::StrCat(" on ", process->hostname);
}

std::string FirstStep(HangVerdict verdict, Situation situation, const ProcessSnapshot* process,
                      const CommunicatorSnapshot* communicator) {
  const char* words =
      process == nullptr ? WordsOf(verdict, situation, &VerdictWords::unseen) : nullptr;
  if (words == nullptr) words = WordsOf(verdict, situation, &VerdictWords::first);
  const std::string on = OnHost(process);
  std::string pid = "PID";
  std::string where = on;
  if (process != nullptr && !process->is_of_dump) {
    const int32_t host_pid = HostPid(*process);
    pid = absl::StrCat(host_pid > 0 ? host_pid : process->pid);
    if (host_pid <= 0) {
      absl::StrAppend(&where, ", in its container (PID namespace ", process->pid_namespace, ")");
    }
  }
  const std::string gpu = communicator == nullptr || communicator->gpu.empty()
                              ? ""
                              : absl::StrCat(", GPU ", communicator->gpu);
  return absl::StrReplaceAll(words,
                             {{"{pid}", pid}, {"{where}", where}, {"{on}", on}, {"{gpu}", gpu}});
}

std::string FirstStepOfLate(const ProcessSnapshot* process) {
  return absl::StrCat("nvidia-smi -q -d PERFORMANCE (throttled?) and top (other load?)",
                      OnHost(process));
}

}  // namespace nccl_pulse
