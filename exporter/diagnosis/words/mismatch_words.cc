#include "exporter/diagnosis/words/mismatch_words.h"

#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "exporter/diagnosis/words/rank_words.h"

namespace nccl_pulse {
namespace {

std::string KindWords(const CallOrderSnapshot::Kind& kind, bool with_root) {
  return absl::StrCat(kind.op, " of ", kind.bytes, " bytes",
                      kind.datatype.empty() ? "" : absl::StrCat(" (", kind.datatype, ")"),
                      with_root ? absl::StrCat(" with root ", kind.root) : "");
}

}  // namespace

std::string MismatchWords(const Mismatch& mismatch) {
  std::map<std::string, const Ranks*> by_words;
  const bool is_root = mismatch.by == Mismatch::By::kRoots;
  for (const CallSide& side : mismatch.sides) {
    by_words[side.kind != nullptr ? KindWords(*side.kind, is_root) : CallWords(side.calls)] =
        &side.ranks;
  }
  const bool is_order = mismatch.by == Mismatch::By::kOrder;
  const std::string sides =
      absl::StrJoin(by_words, "; ", [is_order](std::string* out, const auto& side) {
        absl::StrAppend(out, Names(*side.second), " ", Verb(*side.second, "has", "have"),
                        " called ", side.first.empty() ? "neither" : side.first,
                        is_order ? " last" : "");
      });
  if (mismatch.by == Mismatch::By::kCallNumber || is_root) {
    return absl::StrCat("The ranks' calls differ at collective ", mismatch.call_number,
                        " of this communicator", is_root ? ": the roots differ" : "", ": ", sides,
                        ".");
  }
  if (is_order) {
    return absl::StrCat(
        "The ranks have called the same operations, but not in the same order: ", sides, ".");
  }
  return absl::StrCat("The ranks have called different ",
                      mismatch.by == Mismatch::By::kSizes ? "sizes" : "operations",
                      ", which never complete: ", sides, ".");
}

}  // namespace nccl_pulse
