#include "exporter/outside/known_faults.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace nccl_pulse::outside {
namespace {

#ifdef __aarch64__
constexpr bool kIsArm = true;
#else
constexpr bool kIsArm = false;
#endif

// As NCCL numbers its releases; 0: the text is none.
int ReleaseOf(std::string_view text) {
  const std::vector<std::string_view> parts = absl::StrSplit(text.substr(0, text.find('+')), '.');
  int release = 0;
  for (const std::string_view part : parts) {
    int number = 0;
    if (parts.size() != 3 || !absl::SimpleAtoi(part, &number) || number < 0 || number > 99)
      return 0;
    release = release * 100 + number;
  }
  return release;
}

std::string ReleaseWords(int release) {
  return absl::StrCat(release / 10000, ".", release / 100 % 100, ".", release % 100);
}

}  // namespace

std::vector<std::string> KnownFaults(std::string_view nccl_version) {
  std::vector<std::string> faults;
  const int release = ReleaseOf(nccl_version);
  for (const KnownFault& each : kKnownFaults) {
    const bool is_fixed = each.fixed != 0 && release >= each.fixed;
    if (release < each.first || is_fixed || (each.is_of_arm && !kIsArm)) continue;
    faults.push_back(absl::StrCat(
        "Known bug of NCCL ", ReleaseWords(release), ": ", each.symptom, ".",
        each.fixed == 0 ? "" : absl::StrCat(" Fixed in ", ReleaseWords(each.fixed), "."), " (",
        each.source, ")"));
  }
  return faults;
}

}  // namespace nccl_pulse::outside
