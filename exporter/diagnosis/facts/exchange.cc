#include "exporter/diagnosis/facts/exchange.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace nccl_pulse {
namespace {

constexpr std::size_t kLeastTimed = 8;
constexpr int kMostExponent = 24;  // the sampler's largest; a hostile message may have any

// True if each launch of the rank has exactly `parts` Sends and as many Recvs. The test is exact,
// because a rank that has skipped a launch, whose numbers stay wrong, looks like a rank that is
// about to launch.
bool HasParts(const RankView& rank, uint64_t parts) {
  const CommunicatorSnapshot& communicator = *rank.communicator;
  const uint64_t collectives = Total(CollectiveCalls(communicator));
  if (communicator.launches <= collectives) return false;
  const uint64_t exchanges = communicator.launches - collectives;
  return exchanges <= UINT64_MAX / parts && rank.CallsOf("Send") == exchanges * parts &&
         rank.CallsOf("Recv") == exchanges * parts;
}

}  // namespace

bool AreLaunchesExchanges(const CommunicatorView& view) {
  if (view.nranks < 3) return false;
  const auto peers = static_cast<uint64_t>(view.nranks - 1);
  for (const uint64_t parts : {peers, peers + 1}) {
    const bool have_all =
        std::all_of(view.ranks.begin(), view.ranks.end(), [parts](const RankView& rank) {
          return AreCallsKnown(*rank.process, *rank.communicator) == CallsKnown::kYes &&
                 HasParts(rank, parts);
        });
    if (have_all) return true;
  }
  return false;
}

std::optional<double> ShareInCalls(const RankView& rank,
                                   bool (*is_counted)(const TimedCallSnapshot& call)) {
  std::size_t timed = 0;
  double seconds = 0;
  int64_t first_ns = INT64_MAX;
  int64_t last_ns = 0;
  for (const TimedCallSnapshot& call : rank.communicator->timed_calls) {
    const bool is_duration =
        call.kind == LatencyKind::kDurationStream || call.kind == LatencyKind::kDurationKernel;
    if (!is_duration || !is_counted(call)) continue;
    ++timed;
    seconds += static_cast<double>(call.duration_ns) / 1e9;
    first_ns = std::min(first_ns, call.end_realtime_ns);
    last_ns = std::max(last_ns, call.end_realtime_ns);
  }
  if (timed < kLeastTimed || last_ns <= first_ns) return std::nullopt;
  const int exponent = std::clamp(rank.process->sampling_exponent, 0, kMostExponent);
  const auto count = static_cast<double>(timed);
  // n calls delimit n - 1 intervals.
  const double span = static_cast<double>(ElapsedNs(last_ns, first_ns)) / 1e9 * count / (count - 1);
  return std::ldexp(seconds / span, exponent);
}

}  // namespace nccl_pulse
