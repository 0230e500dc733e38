// Faults of NCCL releases that look like a hang of the job.
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "exporter/outside/outside_words.h"

namespace nccl_pulse::outside {
namespace {

#ifdef __aarch64__
constexpr bool kIsArm = true;
#else
constexpr bool kIsArm = false;
#endif

struct KnownFault {
  const char *first, *fixed;  // releases; "": not known to be fixed
  bool is_of_arm;
  const char* symptom;
  const char* source;
};

constexpr KnownFault kKnownFaults[] = {
    {"2.24.0", "2.29.3", true,
     "a rank runs out of slots for network operations, and all GPUs stay busy",
     "NVIDIA/nccl issue 2353, release notes of 2.29.3"},
    {"2.29.2", "2.29.3", false, "a hang that 2.28 did not have",
     "pytorch/pytorch pull request 174338"},
    {"2.28.7", "2.30.4", false,
     "replays of CUDA graphs with collectives between nodes stall (--enforce-eager avoids it)",
     "vllm-project/vllm issue 52504"},
    {"2.27.3", "", false,
     "RAS' text report (ncclras without -f json) can crash the rank that answers; don't run it",
     "NVIDIA/nccl issue 2346"},
};

// Returns NCCL's number of a release, such as 22809; 0 if the text is no release.
int ReleaseOf(std::string_view text) {
  const std::vector<std::string_view> parts = absl::StrSplit(text, '.');
  int release = 0;
  for (const std::string_view part : parts) {
    int number = 0;
    if (parts.size() != 3 || !absl::SimpleAtoi(part, &number) || number < 0 || number > 99)
      return 0;
    release = release * 100 + number;
  }
  return release;
}

}  // namespace

std::vector<std::string> KnownFaults(std::string_view nccl_version) {
  std::vector<std::string> faults;
  const std::string_view release = nccl_version.substr(0, nccl_version.find('+'));
  const int number = ReleaseOf(release);
  for (const KnownFault& each : kKnownFaults) {
    const std::string_view fixed = each.fixed;
    const bool is_fixed = !fixed.empty() && number >= ReleaseOf(fixed);
    if (number < ReleaseOf(each.first) || is_fixed || (each.is_of_arm && !kIsArm)) continue;
    faults.push_back(absl::StrCat("Known bug of NCCL ", release, ": ", each.symptom, ".",
                                  fixed.empty() ? "" : absl::StrCat(" Fixed in ", fixed, "."), " (",
                                  each.source, ")"));
  }
  return faults;
}

}  // namespace nccl_pulse::outside
