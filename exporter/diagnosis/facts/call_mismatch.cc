#include "exporter/diagnosis/facts/call_mismatch.h"

#include <algorithm>

namespace nccl_pulse {
namespace {

void AddSide(const Calls& calls, const RankView* rank, Mismatch* mismatch) {
  for (const auto& [kind, count] : calls) mismatch->operations.insert(kind.first);
  for (CallSide& side : mismatch->sides) {
    if (side.calls == calls) return side.ranks.push_back(rank);
  }
  mismatch->sides.push_back({calls, {rank}, nullptr});
}

}  // namespace

Mismatch CompareSides(const CommunicatorFacts& facts) {
  std::vector<Calls> compared;
  for (const Calls& each : facts.calls) compared.push_back(WithoutSizes(each));
  const bool by_size = std::all_of(compared.begin(), compared.end(),
                                   [&](const Calls& each) { return each == compared.front(); });
  if (by_size) compared = facts.calls;
  Calls common = compared.front();
  for (const Calls& each : compared) common = Common(common, each);
  Mismatch mismatch{by_size ? Mismatch::By::kSizes : Mismatch::By::kOperations, {}, {}, 0};
  for (std::size_t i = 0; i < compared.size(); ++i) {
    AddSide(Excess(compared[i], common), facts.live[i], &mismatch);
  }
  return mismatch;
}

}  // namespace nccl_pulse
