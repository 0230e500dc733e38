#include "exporter/diagnosis/facts/exchange.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace nccl_pulse {

namespace {

// Whether that rank's launches have `parts` Sends and as many Recvs each. Exactly: a rank that is
// just calling looks like one that has made a launch less, whose numbers are off for good.
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

namespace {

constexpr std::size_t kLeastTimed = 8;
constexpr int kMostExponent = 24;  // the sampler's largest; a hostile message says anything

bool IsOfPeers(const TimedCallSnapshot& call) {
  return IsPointToPoint(call.op) || IsGrouped(call.op);
}

}  // namespace

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
  // There are as many stretches of time as calls, less one.
  const double span = static_cast<double>(ElapsedNs(last_ns, first_ns)) / 1e9 * count / (count - 1);
  return std::ldexp(seconds / span, exponent);
}

PointToPointWaits::PointToPointWaits(const std::vector<CommunicatorView>& views) {
  for (const CommunicatorView& view : views) {
    if (!view.has_point_to_point || view.is_exchange) continue;
    for (const RankView& rank : view.ranks) {
      if (rank.state != RankView::State::kLive) continue;
      const std::optional<double> share = ShareInCalls(rank, IsOfPeers);
      const auto [at, is_first] = shares_.try_emplace(rank.process, share);
      if (is_first) continue;
      // One that is not known spoils the sum.
      at->second = at->second && share ? std::optional(*at->second + *share) : std::nullopt;
    }
  }
}

std::optional<double> PointToPointWaits::Of(const ProcessSnapshot* process) const {
  const auto found = shares_.find(process);
  return found == shares_.end() ? std::nullopt : found->second;
}

std::optional<double> PointToPointWaits::Median(
    const CommunicatorView& view, const std::set<const ProcessSnapshot*>& without) const {
  std::vector<double> shares;
  std::size_t others = 0;
  for (const RankView& rank : view.ranks) {
    if (without.count(rank.process) != 0) continue;
    ++others;
    if (const std::optional<double> share = Of(rank.process)) shares.push_back(*share);
  }
  if (shares.empty() || 2 * shares.size() < others) return std::nullopt;
  const auto middle = shares.begin() + static_cast<std::ptrdiff_t>(shares.size() / 2);
  std::nth_element(shares.begin(), middle, shares.end());
  return *middle;
}

}  // namespace nccl_pulse
