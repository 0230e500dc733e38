// Decides which rank or host is named, from the sums of straggler.cc.
#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "exporter/diagnosis/facts/exchange.h"
#include "exporter/diagnosis/stragglers/rounds.h"
#include "exporter/diagnosis/stragglers/straggler.h"
#include "exporter/diagnosis/words/words.h"

namespace nccl_pulse {
namespace {

constexpr double kSecond = 1e9;

// By chance one of about eight may have this much more than its part.
constexpr double kMostErrors = 3.2;

// Says whether its ranks may all be late alike: none by far more often than the others.
bool AreAlike(double late_calls, double most_of_one, std::size_t ranks_ever_late,
              std::size_t ranks) {
  const double part = 1 / static_cast<double>(ranks);
  const double most = part + kMostErrors * std::sqrt(part * (1 - part) / late_calls);
  return 2 * ranks_ever_late >= ranks && ranks_ever_late >= 2 && most_of_one <= most * late_calls;
}

// Returns the largest lateness besides that of `these`: a rank's, or a host's if these are a
// host's.
double NextInMean(const MeanLateness& mean, const std::vector<const RankView*>& ranks,
                  const std::vector<std::size_t>& these) {
  struct Sum {
    double ns = 0, ranks = 0;
  };
  std::map<std::string, Sum> of_hosts;
  double next_ns = 0;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (std::find(these.begin(), these.end(), i) != these.end()) continue;
    Sum& sum = of_hosts[ranks[i]->process->hostname];
    sum.ns += mean.of_rank[i];
    ++sum.ranks;
    if (these.size() == 1) next_ns = std::max(next_ns, mean.of_rank[i]);
  }
  if (these.size() == 1) return next_ns;
  for (const auto& [host, sum] : of_hosts) next_ns = std::max(next_ns, sum.ns / sum.ranks);
  return next_ns;
}

}  // namespace

std::optional<Straggler> StragglerState::Find(const CommunicatorView& view) const {
  if (view.spans_pipeline || window_.observed <= 0 || window_.matched < kMinMatched ||
      window_.late < kMinLate || window_.rounds <= 0) {
    return std::nullopt;
  }
  const std::vector<const RankView*> ranks = LiveRanks(view);
  if (ranks.size() < 2) return std::nullopt;
  const auto count = static_cast<double>(ranks.size());
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const RankView* rank = ranks[i];
    const auto found = ranks_.find(rank->rank());
    if (found == ranks_.end()) continue;
    std::optional<Straggler> straggler = Judge(found->second, count, view, ranks, {i});
    if (!straggler) continue;
    const std::string gpu =
        rank->communicator->gpu.empty() ? "" : absl::StrCat(", GPU ", rank->communicator->gpu);
    straggler->lateness = absl::StrFormat(
        "arrives last at %.0f %% of the late calls%s; the others wait %s per call, %s of the time.",
        straggler->late_share * 100,
        static_cast<int32_t>(ranks.size()) == view.nranks ? ""
        : rank->is_of_many_hosts                          ? ", among the ranks that are seen"
                                                          : ", among the ranks of this node",
        SecondsWords(straggler->mean_seconds), ShareWords(straggler->seconds_per_second));
    straggler->text = absl::StrFormat("Rank %d (pid %s%s) %s", straggler->rank,
                                      PidWords(*rank->process), gpu, straggler->lateness);
    return straggler;
  }
  return FindHost(view, ranks);
}

// A slow host: its ranks take turns in coming last, so none of them is last often enough to be
// named.
std::optional<Straggler> StragglerState::FindHost(const CommunicatorView& view,
                                                  const std::vector<const RankView*>& ranks) const {
  if (!ranks.front()->is_of_many_hosts) return std::nullopt;
  struct OfHost {
    std::vector<int32_t> ranks;
    std::vector<std::size_t> indices;
    OfRank sum;                  // as if its ranks were one
    double most_late_calls = 0;  // the most that one of its ranks has
    std::size_t ever_late = 0;
  };
  std::map<std::string, OfHost> hosts;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const RankView* rank = ranks[i];
    const auto found = ranks_.find(rank->rank());
    if (found == ranks_.end()) continue;
    const OfRank& of = found->second;
    OfHost& host = hosts[rank->process->hostname];
    host.most_late_calls = std::max(host.most_late_calls, of.late_calls);
    if (of.late_calls > 0) ++host.ever_late;
    host.ranks.push_back(rank->rank());
    host.indices.push_back(i);
    host.sum.late_calls += of.late_calls;
    host.sum.late_rounds += of.late_rounds;
    host.sum.window_seconds += of.window_seconds;
    host.sum.late_seconds += of.late_seconds;
    host.sum.matches_at_late = std::max(host.sum.matches_at_late, of.matches_at_late);
    host.sum.last_late_end_ns = std::max(host.sum.last_late_end_ns, of.last_late_end_ns);
  }
  if (hosts.size() < 2) return std::nullopt;
  for (const auto& [name, host] : hosts) {
    if (host.ranks.size() < 2 ||
        !AreAlike(host.sum.late_calls, host.most_late_calls, host.ever_late, host.ranks.size())) {
      continue;
    }
    std::optional<Straggler> straggler =
        Judge(host.sum, static_cast<double>(hosts.size()), view, ranks, host.indices);
    if (!straggler) continue;
    straggler->host = name;
    straggler->ranks = host.ranks;
    straggler->text = absl::StrFormat(
        "The %d ranks of %s take turns to arrive last, at %.0f %% of the late calls; the others "
        "wait %s of the time.",
        host.ranks.size(), name, straggler->late_share * 100,
        ShareWords(straggler->seconds_per_second));
    return straggler;
  }
  return std::nullopt;
}

std::optional<Straggler> StragglerState::Judge(const OfRank& of, double candidates,
                                               const CommunicatorView& view,
                                               const std::vector<const RankView*>& ranks,
                                               const std::vector<std::size_t>& these) const {
  Straggler straggler;
  straggler.rank = ranks[these.front()]->rank();
  straggler.seconds_per_second = of.window_seconds / window_.observed;
  straggler.late_share = of.late_rounds / window_.rounds;
  straggler.matched_calls = static_cast<uint64_t>(window_.matched);
  if (IsInTimeAgain(of) || straggler.seconds_per_second < kMinLoss ||
      !AreLate(straggler.late_share, candidates, view, ranks, these, of.late_seconds)) {
    return std::nullopt;
  }
  straggler.mean_seconds = of.late_seconds / of.late_calls;
  return straggler;
}

bool StragglerState::IsInTimeAgain(const OfRank& of) const {
  const auto since = static_cast<double>(matches_ - of.matches_at_late);
  // All calls of a round may be in time together, so rounds have to pass as well. The rounds of a
  // pause have no calls to count.
  const double passed_ns = static_cast<double>(last_match_end_ns_ - of.last_late_end_ns);
  const double enough_ns = round_ns_ > 0 ? kRoundsOfWindow * round_ns_ : kWindowSeconds * kSecond;
  return since * of.late_calls > kMissingLate * window_.matched && passed_ns > enough_ns;
}

bool StragglerState::AreLate(double share, double candidates, const CommunicatorView& view,
                             const std::vector<const RankView*>& ranks,
                             const std::vector<std::size_t>& these, double late_seconds) const {
  if (share < kMinShareOfMean) return false;
  const double chance = static_cast<double>(these.size()) / static_cast<double>(ranks.size());
  const bool are_most = share >= kMinLateShare;
  // With two ranks, chance gives each a half; the share is at least that.
  if (!are_most && candidates < 3) return false;
  if (are_most && IsBeyondChance(share, chance, Rounds(view), candidates)) return true;
  const bool are_exchanges = view.is_exchange && AreLaunchesExchanges(view);
  return AreLateInMean(MeanLatenessOf(ranks, are_exchanges, rounds_), ranks, these, late_seconds,
                       !are_most);
}

bool StragglerState::AreLateInMean(const MeanLateness& mean,
                                   const std::vector<const RankView*>& ranks,
                                   const std::vector<std::size_t>& these, double late_seconds,
                                   bool are_alone) const {
  if (mean.rounds < kMinMeanRounds || window_.waits <= 0) return false;
  double late_ns = 0;
  for (const std::size_t i : these) late_ns += mean.of_rank[i] / static_cast<double>(these.size());
  // A difference that stays in the mean is no deviation. If most of the difference stays, it may be
  // chance.
  double square = window_.square / window_.waits;
  double constant = SumOfSquares(mean.of_rank) / static_cast<double>(ranks.size());
  if (these.size() > 1) {
    const HostsOfRanks hosts(ranks);
    square = window_.host_square / window_.hosts;
    constant = hosts.SumOfSquares(mean.of_rank) / static_cast<double>(hosts.size());
  }
  const double variance = std::max(square - constant, kMinVariance * square);
  // The calls of one round tell the deviation only as well as so many ranks do.
  const double freedom = std::max(1.0, window_.rounds) * static_cast<double>(ranks.size() - 1);
  const double errors = these.size() > 1 ? kMinErrors : kMinErrors * (1 + kMoreErrors / freedom);
  if (are_alone) {
    if (mean.rounds < kMinRoundsAlone) return false;
    // Ranks differ more in the mean than now. Long waits of the past make up that mean, and they do
    // not show how far ranks differ.
    if (constant > kMostOfPast * square) return false;
    const double next_ns = NextInMean(mean, ranks, these);
    if (next_ns > kMostOfNext * late_ns ||
        late_ns - next_ns < errors * std::sqrt(2 * variance / mean.rounds)) {
      return false;
    }
  }
  return late_ns > errors * std::sqrt(variance / mean.rounds) &&
         late_ns > kMinPartOfNow * late_seconds / window_.matched * kSecond;
}

double StragglerState::Rounds(const CommunicatorView& view) const {
  const bool are_known = round_ns_ > 0 || !view.is_exchange;
  return are_known ? window_.rounds : window_.rounds / kExchangesOfRound;
}

std::optional<LateRank> StragglerState::FindPerhaps(const CommunicatorView& view) const {
  if (view.spans_pipeline || window_.late <= 0 || Rounds(view) >= kEnoughRounds) {
    return std::nullopt;
  }
  const std::vector<const RankView*> ranks = LiveRanks(view);
  if (ranks.size() < 2) return std::nullopt;
  struct Late {
    double calls = 0, seconds = 0;
  };
  std::map<std::string, Late> of_hosts;
  const auto is_mostly = [this](const Late& late) {
    return late.calls >= kMinLateShare * window_.late && late.seconds > kMinLoss * window_.observed;
  };
  bool is_any = false;
  LateRank perhaps;
  for (const RankView* rank : ranks) {
    const auto found = ranks_.find(rank->rank());
    if (found == ranks_.end()) continue;
    const OfRank& of = found->second;
    is_any |= is_mostly({of.late_calls, of.window_seconds});
    Late& of_host = of_hosts[rank->process->hostname];
    of_host.calls += of.late_calls;
    of_host.seconds += of.window_seconds;
    const double seconds_per_second =
        window_.observed > 0 ? of.window_seconds / window_.observed : 0;
    if (seconds_per_second > perhaps.seconds_per_second) {
      perhaps = {rank->rank(), seconds_per_second};
    }
  }
  // If all ranks are on one host, no other host waits for it.
  if (of_hosts.size() > 1) {
    for (const auto& [host, late] : of_hosts) is_any |= is_mostly(late);
  }
  if (!is_any) return std::nullopt;
  return perhaps;
}

void StragglerState::Forgive(int32_t rank) {
  OfRank& of = ranks_[rank];
  of.total_seconds = of.before_seconds;
}

std::vector<RankLoss> StragglerState::Losses(const CommunicatorView& view) const {
  std::vector<RankLoss> losses;
  if (ranks_.size() < 2) return losses;
  for (const RankView& rank : view.ranks) {
    const auto found = ranks_.find(rank.rank());
    if (found == ranks_.end()) continue;
    losses.push_back({rank.rank(), found->second.total_seconds, rank.process->static_labels});
  }
  return losses;
}

}  // namespace nccl_pulse
