// KnownFaults lists faults of NCCL releases that look like a hang of the job. They are advice
// beside a hang, never a verdict: it isn't known whether the job met the fault.
//
// Thread: any, no state.
#ifndef EXPORTER_OUTSIDE_KNOWN_FAULTS_H_
#define EXPORTER_OUTSIDE_KNOWN_FAULTS_H_

#include <string>
#include <string_view>
#include <vector>

namespace nccl_pulse::outside {

struct KnownFault {
  int first, fixed;  // releases: 22809 is 2.28.9; `fixed` 0: not known to be fixed
  bool is_of_arm;
  const char* symptom;
  const char* source;
};

inline constexpr KnownFault kKnownFaults[] = {
    {22400, 22903, true, "a rank runs out of slots for network operations, and all GPUs stay busy",
     "NVIDIA/nccl issue 2353, release notes of 2.29.3"},
    {22902, 22903, false, "a hang that 2.28 did not have", "pytorch/pytorch pull request 174338"},
    {22807, 23004, false,
     "replays of CUDA graphs with collectives between nodes stall (--enforce-eager avoids it)",
     "vllm-project/vllm issue 52504"},
    {22703, 0, false,
     "RAS' text report (ncclras without -f json) can crash the rank that answers; don't run it",
     "NVIDIA/nccl issue 2346"},
};

// Returns a sentence for each fault of this release ("2.28.9"), with the source.
std::vector<std::string> KnownFaults(std::string_view nccl_version);

}  // namespace nccl_pulse::outside

#endif  // EXPORTER_OUTSIDE_KNOWN_FAULTS_H_
