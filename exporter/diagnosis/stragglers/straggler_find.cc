// Decides which rank or host is named, from the sums of straggler.cc.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "exporter/diagnosis/facts/exchange.h"
#include "exporter/diagnosis/stragglers/rounds.h"
#include "exporter/diagnosis/stragglers/straggler.h"
#include "exporter/diagnosis/words/words.h"

namespace nccl_pulse {
namespace {

constexpr double kSecond = 1e9;

// By chance one of about eight may have this much more than its part.
constexpr double kMostErrors = 3.2;

// Returns in how many ways `together` can be chosen.
double Choices(std::size_t candidates, std::size_t together) {
  double choices = 1;
  for (std::size_t i = 0; i < together; ++i) {
    choices *= static_cast<double>(candidates - i) / static_cast<double>(i + 1);
  }
  return choices;
}

// Returns the largest lateness besides that of `these`: a rank's, or a host's if these are a
// host's.
double NextInMean(const MeanLateness& mean, const HostsOfRanks& hosts,
                  const std::vector<std::size_t>& these) {
  const std::vector<double> of_hosts = hosts.Means(mean.of_rank);
  double next_ns = 0;
  for (std::size_t i = 0; i < mean.of_rank.size(); ++i) {
    if (std::find(these.begin(), these.end(), i) != these.end()) continue;
    next_ns = std::max(next_ns, these.size() == 1 ? mean.of_rank[i] : of_hosts[hosts.Of(i)]);
  }
  return next_ns;
}

}  // namespace

std::optional<Straggler> StragglerState::Find(const CommunicatorView& view) const {
  const bool are_enough =
      window_.matched >= kMinMatched && window_.late >= kMinLate && window_.rounds > 0;
  return are_enough ? FindLate(view, /*is_perhaps=*/false) : std::nullopt;
}

std::optional<LateRank> StragglerState::FindPerhaps(const CommunicatorView& view) const {
  if (window_.rounds <= 0 || Rounds(view) >= kEnoughRounds) return std::nullopt;
  const std::optional<Straggler> found = FindLate(view, /*is_perhaps=*/true);
  if (!found) return std::nullopt;
  return LateRank{found->rank, found->seconds_per_second};
}

std::optional<Straggler> StragglerState::FindLate(const CommunicatorView& view,
                                                  bool is_perhaps) const {
  if (view.spans_pipeline || LostShare() < kMinLoss) return std::nullopt;
  const std::vector<const RankView*> ranks = LiveRanks(view);
  if (ranks.size() < 2) return std::nullopt;
  const std::vector<Candidate> by_rank = Candidates(ranks, /*are_hosts=*/false);
  std::vector<Candidate> by_host;
  if (ranks.front()->is_of_many_hosts) by_host = Candidates(ranks, /*are_hosts=*/true);
  for (std::size_t together = 1; together <= kMostTogether; ++together) {
    for (const auto* candidates : {&by_rank, &std::as_const(by_host)}) {
      if (candidates->size() < 2 || (together > 1 && candidates->size() < 2 * together)) continue;
      // Several by turns: those that came last most often. Of single ones each is looked at.
      const std::size_t last = together > 1 ? 0 : candidates->size() - 1;
      for (std::size_t first = 0; first <= last; ++first) {
        if (std::optional<Straggler> found =
                Judge(*candidates, first, together, is_perhaps, view, ranks)) {
          return found;
        }
      }
    }
  }
  return std::nullopt;
}

std::vector<StragglerState::Candidate> StragglerState::Candidates(
    const std::vector<const RankView*>& ranks, bool are_hosts) const {
  std::map<std::string_view, std::size_t> of_hosts;
  std::vector<Candidate> candidates;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const auto found = ranks_.find(ranks[i]->rank());
    if (found == ranks_.end()) continue;
    const OfRank& of = found->second;
    std::size_t at = candidates.size();
    if (are_hosts) at = of_hosts.try_emplace(ranks[i]->process->hostname, at).first->second;
    if (at == candidates.size()) candidates.emplace_back();
    Candidate& candidate = candidates[at];
    if (are_hosts) candidate.host = ranks[i]->process->hostname;
    candidate.indices.push_back(i);
    candidate.most_late_calls = std::max(candidate.most_late_calls, of.late_calls);
    if (of.late_calls > 0) ++candidate.ever_late;
    OfRank& sum = candidate.sum;
    sum.late_calls += of.late_calls;
    sum.late_rounds += of.late_rounds;
    sum.window_seconds += of.window_seconds;
    sum.late_seconds += of.late_seconds;
    sum.matches_at_late = std::max(sum.matches_at_late, of.matches_at_late);
    sum.last_late_end_ns = std::max(sum.last_late_end_ns, of.last_late_end_ns);
  }
  std::stable_sort(candidates.begin(), candidates.end(), [](const auto& a, const auto& b) {
    return a.sum.late_rounds > b.sum.late_rounds;
  });
  return candidates;
}

std::optional<Straggler> StragglerState::Judge(const std::vector<Candidate>& candidates,
                                               std::size_t first, std::size_t together,
                                               bool is_perhaps, const CommunicatorView& view,
                                               const std::vector<const RankView*>& ranks) const {
  OfRank sum;
  for (std::size_t i = first; i < first + together; ++i) {
    const Candidate& each = candidates[i];
    if (!is_perhaps && (IsInTimeAgain(each.sum) || (!each.host.empty() && !AreAlike(each)))) {
      return std::nullopt;
    }
    sum.late_calls += each.sum.late_calls;
    sum.late_rounds += each.sum.late_rounds;
    sum.window_seconds += each.sum.window_seconds;
    sum.late_seconds += each.sum.late_seconds;
  }
  if (together > 1) {
    const double least = candidates[first + together - 1].sum.late_rounds;
    const double next = candidates[first + together].sum.late_rounds;
    const double part = sum.late_rounds / static_cast<double>(together);
    if (least < kMinPartOfTurns * part || next > kMostOfNext * least) return std::nullopt;
  }
  Straggler straggler;
  straggler.seconds_per_second = sum.window_seconds / SecondsOfWindow();
  straggler.late_share = sum.late_rounds / window_.rounds;
  const double least_share = is_perhaps || together > 1 ? kMinLateShare : kMinShareOfMean;
  if (straggler.seconds_per_second < kMinLoss || straggler.late_share < least_share) {
    return std::nullopt;
  }
  std::map<std::size_t, double> seconds_of;
  std::set<std::string> hosts;
  for (std::size_t i = first; i < first + together; ++i) {
    const Candidate& each = candidates[i];
    for (const std::size_t index : each.indices) seconds_of[index] = each.sum.window_seconds;
    if (!each.host.empty()) hosts.insert(each.host);
  }
  std::vector<std::size_t> these;
  for (const auto& [index, seconds] : seconds_of) {
    these.push_back(index);
    straggler.ranks.push_back(ranks[index]->rank());
    straggler.parts.push_back(seconds / SecondsOfWindow());
  }
  straggler.rank = straggler.ranks.front();
  straggler.window_seconds = SeenSeconds();
  straggler.matched_calls = static_cast<uint64_t>(window_.matched);
  if (is_perhaps) return straggler;
  if (!DoOthersComeTogether(ranks, these) ||
      !AreLate(straggler.late_share, Choices(candidates.size(), together), view, ranks, these,
               !hosts.empty(), sum.late_seconds)) {
    return std::nullopt;
  }
  straggler.mean_seconds = sum.late_seconds / sum.late_calls;
  straggler.host = absl::StrJoin(hosts, ", ");
  Say(view, ranks, these, &straggler);
  return straggler;
}

void StragglerState::Say(const CommunicatorView& view, const std::vector<const RankView*>& ranks,
                         const std::vector<std::size_t>& these, Straggler* straggler) {
  const std::string last =
      absl::StrFormat("at %.0f %% of the late calls", straggler->late_share * 100);
  const std::string wait = ShareWords(straggler->seconds_per_second, straggler->window_seconds);
  if (!straggler->host.empty()) {
    straggler->text =
        absl::StrFormat("The %d ranks of %s take turns to arrive last, %s; the others wait %s.",
                        these.size(), straggler->host, last, wait);
    return;
  }
  const RankView& rank = *ranks[these.front()];
  const std::string others =
      these.size() == 1   ? ""
      : these.size() == 2 ? " by turns with another rank"
                          : absl::StrCat(" by turns with ", these.size() - 1, " other ranks");
  straggler->lateness =
      absl::StrFormat("arrives last%s %s%s; the others wait %s per call, %s.", others, last,
                      static_cast<int32_t>(ranks.size()) == view.nranks ? ""
                      : rank.is_of_many_hosts ? ", among the ranks that are seen"
                                              : ", among the ranks of this node",
                      SecondsWords(straggler->mean_seconds), wait);
  const std::string& gpu = rank.communicator->gpu;
  straggler->text =
      these.size() == 1
          ? absl::StrFormat("Rank %d (pid %s%s) %s", straggler->rank, PidWords(*rank.process),
                            gpu.empty() ? "" : absl::StrCat(", GPU ", gpu), straggler->lateness)
          : absl::StrFormat(
                "Ranks %s take turns to arrive last, %s; the others wait %s per call, %s.",
                absl::StrJoin(straggler->ranks, ", "), last, SecondsWords(straggler->mean_seconds),
                wait);
}

bool StragglerState::DoOthersComeTogether(const std::vector<const RankView*>& ranks,
                                          const std::vector<std::size_t>& these) const {
  std::vector<double> others;
  double own = 0;
  for (std::size_t i = 0, at = 0; i < ranks.size(); ++i) {
    const double waited = ranks_.at(ranks[i]->rank()).waited;
    if (at < these.size() && these[at] == i) {
      own += waited / static_cast<double>(these.size());
      ++at;
    } else {
      others.push_back(waited);
    }
  }
  if (others.size() < 2) return true;
  std::sort(others.begin(), others.end());
  const double middle = others[(others.size() - 1) / 2];
  const double upper = others[(3 * (others.size() - 1) + 3) / 4];
  return upper - middle < kMostOfOrder * (middle - own);
}

bool StragglerState::AreAlike(const Candidate& host) {
  const std::size_t ranks = host.indices.size();
  if (ranks < 2 || host.ever_late < 2 || 2 * host.ever_late < ranks) return false;
  const double part = 1 / static_cast<double>(ranks);
  const double most = part + kMostErrors * std::sqrt(part * (1 - part) / host.sum.late_calls);
  return host.most_late_calls <= most * host.sum.late_calls;
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
                             const std::vector<std::size_t>& these, bool are_hosts,
                             double late_seconds) const {
  const bool are_most = share >= kMinLateShare;
  // With two ranks, chance gives each a half; the share is at least that.
  if (!are_most && candidates < 3) return false;
  const double chance = static_cast<double>(these.size()) / static_cast<double>(ranks.size());
  if (are_most && IsBeyondChance(share, chance, Rounds(view), candidates)) return true;
  const bool are_exchanges = view.is_exchange && AreLaunchesExchanges(view);
  return AreLateInMean(MeanLatenessOf(ranks, are_exchanges, rounds_), ranks, these, are_hosts,
                       late_seconds, !are_most);
}

bool StragglerState::AreLateInMean(const MeanLateness& mean,
                                   const std::vector<const RankView*>& ranks,
                                   const std::vector<std::size_t>& these, bool are_hosts,
                                   double late_seconds, bool are_alone) const {
  if (mean.rounds < kMinMeanRounds || window_.waits <= 0) return false;
  double late_ns = 0;
  for (const std::size_t i : these) late_ns += mean.of_rank[i] / static_cast<double>(these.size());
  const HostsOfRanks hosts(ranks);
  const auto square_of = [&](const std::vector<double>& of_ranks) {
    return are_hosts ? SumOfSquares(hosts.Means(of_ranks)) / static_cast<double>(hosts.size())
                     : SumOfSquares(of_ranks) / static_cast<double>(ranks.size());
  };
  const double square =
      are_hosts ? window_.host_square / window_.hosts : window_.square / window_.waits;
  const double constant = square_of(mean.of_rank);
  // A difference that stays in the mean of a kind of call is no deviation. If all of it stays, it may
  // still be chance.
  double deviation = square;
  for (const auto& kind : mean.kinds) deviation -= kind.part * square_of(kind.of_rank);
  const double variance = std::max(kMostVariance * deviation, kMinVariance * constant);
  // The calls of one round tell the deviation only as well as so many ranks do.
  const double freedom = std::max(1.0, window_.rounds) * static_cast<double>(ranks.size() - 1);
  const double errors = are_hosts ? kMinErrors : kMinErrors * (1 + kMoreErrors / freedom);
  if (are_alone) {
    if (mean.rounds < kMinRoundsAlone) return false;
    // Ranks differ more in the mean than now. Long waits of the past make up that mean, and they do
    // not show how far ranks differ.
    if (constant > kMostOfPast * square) return false;
    const double next_ns = NextInMean(mean, hosts, these);
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

double StragglerState::SecondsOfWindow() const {
  return static_cast<double>(ElapsedNs(updated_realtime_ns_, window_begin_ns_)) / kSecond;
}

int64_t StragglerState::SeenSeconds() const {
  return std::max<int64_t>(1, std::llround(std::min(SecondsOfWindow(), window_length_)));
}

double StragglerState::WaitedShare() const {
  return window_.matched < kMinMatched || window_.late < kMinLate ? 0 : LostShare();
}

double StragglerState::LostShare() const {
  if (SecondsOfWindow() <= 0) return 0;
  double seconds = 0;
  for (const auto& [rank, of] : ranks_) seconds += of.window_seconds;
  return seconds / SecondsOfWindow();
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
