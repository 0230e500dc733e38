#include "exporter/diagnosis/stragglers/rounds.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "exporter/diagnosis/facts/rank_activity.h"

namespace nccl_pulse {
namespace {

constexpr double kLeastLikely = 1e-5;
constexpr std::size_t kLeastTimed = 8;

double Information(double share, double chance) {
  return share <= 0 ? 0 : share * std::log(share / chance);
}

}  // namespace

uint64_t RoundsOf(const ProcessSnapshot& process) {
  uint64_t all = 0;
  uint64_t rarest = UINT64_MAX;
  std::vector<uint64_t> counts;
  int64_t newest_ns = 0;
  for (const CommunicatorSnapshot& each : process.communicators) {
    newest_ns = std::max(newest_ns, each.last_launch_realtime_ns);
  }
  for (const CommunicatorSnapshot& communicator : process.communicators) {
    const bool rests = communicator.last_launch_realtime_ns != 0 &&
                       ElapsedNs(newest_ns, communicator.last_launch_realtime_ns) > kRestNs;
    if (communicator.finalized || rests) continue;
    // A kind may have several data types.
    std::map<std::pair<std::string_view, int>, uint64_t> kinds;
    for (const CallCountSnapshot& each : communicator.calls) {
      if (IsCollective(each.op) && !each.captured) kinds[{each.op, each.size_class}] += each.calls;
    }
    for (const auto& [kind, calls] : kinds) {
      all += calls;
      counts.push_back(calls);
    }
  }
  for (const uint64_t calls : counts) {
    if (calls >= kMinRounds && calls > all / kMostCallsOfRound) rarest = std::min(rarest, calls);
  }
  return rarest == UINT64_MAX ? 0 : rarest;
}

uint64_t RoundsOfProcesses::Of(const ProcessSnapshot& process) {
  const auto [at, is_new] = rounds_.try_emplace(&process, 0);
  if (is_new) at->second = RoundsOf(process);
  return at->second;
}

uint64_t CallsOfKind(const CommunicatorSnapshot& communicator, const TimedCallSnapshot& kind) {
  const bool is_grouped = kind.op == "Grouped";
  uint64_t calls = 0;
  for (const CallCountSnapshot& each : communicator.calls) {
    const bool is_of_size =
        kind.kind == LatencyKind::kDurationKernel || each.size_class == kind.size_class;
    const bool is_counted = is_grouped ? IsCollective(each.op) : each.op == kind.op && is_of_size;
    if (is_counted && !each.captured) calls += each.calls;
  }
  if (!is_grouped) return calls;
  return communicator.launches > calls ? communicator.launches - calls : 0;
}

bool IsBeyondChance(double share, double chance, double occasions, double candidates) {
  if (share <= chance || chance >= 1) return false;
  const double information = Information(share, chance) + Information(1 - share, 1 - chance);
  return occasions * information >= std::log(candidates / kLeastLikely);
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
  const int exponent = std::clamp(rank.process->sampling_exponent, 0, kMostSamplingExponent);
  const auto count = static_cast<double>(timed);
  // n calls delimit n - 1 intervals.
  const double span = static_cast<double>(ElapsedNs(last_ns, first_ns)) / 1e9 * count / (count - 1);
  return std::ldexp(seconds / span, exponent);
}

}  // namespace nccl_pulse
